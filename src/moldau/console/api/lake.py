"""Lake tables: those that pipelines say they write, with rows, files, versions and a preview.

No other path is opened, whoever asks. Only paths of this machine are: what a status names elsewhere
would be read with rights that are the console's, not the visitor's.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import msgspec

from moldau.console.call import Call
from moldau.console.endpoint import endpoint
from moldau.console.errors import ApiError, not_found
from moldau.console.sampling.pipelines import read_pipelines
from moldau.console.values.registered import as_plain

_PREVIEWED = 50
_MOST_VERSIONS = 50


class LakeTable(msgspec.Struct):
    pipeline: str
    sink: str
    type: str
    path: str


class LakeTables(msgspec.Struct):
    tables: list[LakeTable]


class LakeQuery(msgspec.Struct):
    """`pipeline` shows only the tables of one."""

    pipeline: str = ""


class TableQuery(msgspec.Struct):
    path: str


class TableVersion(msgspec.Struct):
    version: int
    at_ms: int | None
    operation: str


class TablePreview(msgspec.Struct):
    """The first rows; `is_hidden` if they come from a topic with masked fields, so that none are
    shown: a pipeline may have given the fields other names."""

    columns: list[str]
    rows: list[list[Any]]
    is_hidden: bool = False


class TableInfo(msgspec.Struct):
    """A Delta table; `rows` is null where files do not say how many they have."""

    path: str
    rows: int | None
    files: int
    bytes: int
    version: int
    versions: list[TableVersion]
    schema: list[dict[str, str]]
    preview: TablePreview


@endpoint("GET", "api/lake")
def list_tables(call: Call, asked: LakeQuery) -> LakeTables:
    """List the lake tables that pipelines write."""
    return LakeTables(_tables(call, asked.pipeline))


def _tables(call: Call, pipeline: str = "") -> list[LakeTable]:
    return [
        LakeTable(each.name, sink.name, sink.type, sink.path)
        for each in read_pipelines(call.cluster)
        for sink in each.sinks
        if sink.path and (not pipeline or each.name == pipeline)
    ]


@endpoint("GET", "api/lake/table")
def get_table(call: Call, asked: TableQuery) -> TableInfo:
    """Describe a lake table: rows, files, versions, schema, and its first rows."""
    table = next((each for each in _tables(call) if each.path == asked.path), None)
    if table is None:
        raise not_found(f"table {asked.path} of a pipeline")
    if table.type != "delta":
        raise ApiError(422, "not_delta", f"{table.path} is {table.type}, and only Delta is shown")
    if importlib.util.find_spec("deltalake") is None:
        raise ApiError(422, "extra_missing", "lake tables need deltalake", "install moldau[spark]")
    local = table.path.removeprefix("file://")
    if "://" in local or not Path(local).is_dir():
        raise ApiError(404, "not_here", f"{table.path} is not on this machine")
    try:
        return _described(table.path, local, _reads_masked(call, table.pipeline))
    except ApiError:
        raise
    except Exception as problem:
        # deltalake raises errors of many kinds, for files that are not as they should be.
        raise ApiError(502, "table", f"{table.path}: {problem}") from None


def _reads_masked(call: Call, name: str) -> bool:
    """Return whether a pipeline may read a topic with fields that are hidden."""
    masks = call.console.masks
    if not masks:
        return False
    (found,) = [each for each in read_pipelines(call.cluster) if each.name == name]
    sources = found.more.get("sources") or ()
    return not sources or any(
        not source.get("topics")
        or source.get("pattern")
        or any(masks.of(topic) for topic in source["topics"])
        for source in sources
    )


def _described(path: str, local: str, is_hidden: bool) -> TableInfo:
    from deltalake import DeltaTable

    table = DeltaTable(local)
    actions: Any = table.get_add_actions(flatten=True)
    files = [dict(zip(actions.schema.names, row, strict=True)) for row in _rows(actions)]
    counts = [each.get("num_records") for each in files]
    versions = [
        TableVersion(
            int(each.get("version", -1)), each.get("timestamp"), str(each.get("operation", ""))
        )
        for each in table.history(_MOST_VERSIONS)
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
        columns=columns, batch_size=_PREVIEWED, batch_readahead=0, fragment_readahead=0
    )
    rows = scanner.head(_PREVIEWED).to_pylist()
    return TablePreview(columns, [[as_plain(value) for value in row.values()] for row in rows])
