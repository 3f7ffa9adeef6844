"""Delta tables, as deltalake reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moldau.console.lake.description import (
    MOST_VERSIONS,
    PREVIEWED,
    TableInfo,
    TablePreview,
    TableVersion,
)
from moldau.console.values.registered import as_plain


def is_there(folder: Path) -> bool:
    return folder.is_dir()


def describe(path: str, folder: Path, is_hidden: bool) -> TableInfo:
    """Describe the table in a folder; its rows are not shown if they are to be hidden."""
    from deltalake import DeltaTable

    table = DeltaTable(folder)
    actions: Any = table.get_add_actions(flatten=True)
    files = [dict(zip(actions.schema.names, row, strict=True)) for row in _rows(actions)]
    counts = [each.get("num_records") for each in files]
    versions = [
        TableVersion(
            int(each.get("version", -1)), each.get("timestamp"), str(each.get("operation", ""))
        )
        for each in table.history(MOST_VERSIONS)
    ]
    columns = [
        {"name": str(each.name), "type": str(getattr(each.type, "type", each.type))}
        for each in table.schema().fields
    ]
    return TableInfo(
        path,
        None if any(each is None for each in counts) else sum(map(int, filter(None, counts))),
        len(files),
        sum(int(each.get("size_bytes") or 0) for each in files),
        table.version(),
        versions,
        columns,
        _preview(table, is_hidden),
    )


def _rows(actions: Any) -> list[list[Any]]:
    import pyarrow as pa

    return [list(row.values()) for row in pa.table(actions).to_pylist()]


def _preview(table: Any, is_hidden: bool) -> TablePreview:
    columns = [each.name for each in table.schema().fields]
    if is_hidden:
        return TablePreview(columns, [], True)
    scanner = table.to_pyarrow_dataset().scanner(
        columns=columns, batch_size=PREVIEWED, batch_readahead=0, fragment_readahead=0
    )
    rows = scanner.head(PREVIEWED).to_pylist()
    return TablePreview(columns, [[as_plain(value) for value in row.values()] for row in rows])
