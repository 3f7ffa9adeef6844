"""Iceberg tables of a local warehouse, as pyiceberg reads them.

The catalog is the SQLite file that pipelines keep in the warehouse. It is opened to read only, and
no file outside the warehouse is opened, whatever the catalog or a table's metadata name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from moldau.console.errors import ApiError, not_found
from moldau.console.lake.description import (
    MOST_VERSIONS,
    PREVIEWED,
    TableInfo,
    TablePreview,
    TableVersion,
)
from moldau.console.values.registered import as_plain

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

CATALOG_FILE = "catalog.db"
# pyiceberg's own name for the catalog of those who name none.
_CATALOG = "default"
_FIND = """SELECT metadata_location FROM iceberg_tables
WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"""


def is_there(place: Path) -> bool:
    """Return whether there is a warehouse; `place` is its folder and the name of a table."""
    return (place.parent / CATALOG_FILE).is_file()


def describe(path: str, place: Path, is_hidden: bool) -> TableInfo:
    """Describe the table WAREHOUSE/namespace.name; rows that are to be hidden are not shown."""
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.serializers import FromInputFile

    warehouse = place.parent
    # Settings in the metadata could name another class for this.
    io = PyArrowFileIO()
    location = _local(warehouse, _location(warehouse, place.name))
    metadata = FromInputFile.table_metadata(io.new_input(location))
    numbered = [
        (each.sequence_number or number, each)
        for number, each in enumerate(metadata.snapshots, start=1)
    ]
    versions = [
        TableVersion(number, each.timestamp_ms, _operation(each))
        for number, each in reversed(numbered[-MOST_VERSIONS:])
    ]
    current = metadata.current_snapshot()
    return TableInfo(
        path,
        _rows(current),
        _total(current, "total-data-files") or 0,
        _total(current, "total-files-size") or 0,
        next((number for number, each in numbered if each == current), 0),
        versions,
        [{"name": each.name, "type": str(each.field_type)} for each in metadata.schema().fields],
        _preview(metadata, current, warehouse, io, is_hidden),
    )


def _location(warehouse: Path, name: str) -> str:
    """Return where the newest metadata of a table is."""
    namespace, _, table = name.rpartition(".")
    uri = f"{(warehouse / CATALOG_FILE).as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as catalog:
        found = catalog.execute(_FIND, (_CATALOG, namespace, table)).fetchone()
    if found is None:
        raise not_found(f"table {name} in {warehouse} yet")
    return str(found[0])


def _local(warehouse: Path, location: str) -> str:
    """Return the path of a file; ApiError if it is not in the warehouse."""
    path = unquote(urlparse(location).path) if location.startswith("file:") else location
    if not Path(path).resolve().is_relative_to(warehouse.resolve()):
        raise ApiError(404, "not_here", f"{location} is not in {warehouse}")
    return path


def _operation(snapshot: Snapshot) -> str:
    return "" if snapshot.summary is None else str(snapshot.summary.operation.value)


def _total(snapshot: Snapshot | None, name: str) -> int | None:
    if snapshot is None:
        return 0
    text = None if snapshot.summary is None else snapshot.summary[name]
    return None if text is None else int(text)


def _rows(snapshot: Snapshot | None) -> int | None:
    """Return how many rows there are; None where files of deletes would have to be read."""
    if _total(snapshot, "total-delete-files"):
        return None
    return _total(snapshot, "total-records")


def _preview(
    metadata: TableMetadata,
    snapshot: Snapshot | None,
    warehouse: Path,
    io: FileIO,
    is_hidden: bool,
) -> TablePreview:
    fields = [(each.field_id, each.name) for each in metadata.schema().fields]
    columns = [name for _, name in fields]
    if is_hidden or snapshot is None:
        return TablePreview(columns, [], is_hidden)
    if _total(snapshot, "total-delete-files"):
        return TablePreview(columns, [], note="its rows cannot be shown: it has delete files")
    paths = _data_files(snapshot, warehouse, io)
    rows = (row for path in paths for row in _first_rows(path, fields))
    return TablePreview(columns, list(islice(rows, PREVIEWED)))


def _data_files(snapshot: Snapshot, warehouse: Path, io: FileIO) -> Iterator[str]:
    _local(warehouse, snapshot.manifest_list)
    for manifest in snapshot.manifests(io):
        _local(warehouse, manifest.manifest_path)
        for entry in manifest.fetch_manifest_entry(io):
            yield _local(warehouse, entry.data_file.file_path)


def _first_rows(path: str, fields: Sequence[tuple[int, str]]) -> Iterator[list[Any]]:
    """Yield the first rows of a file, in the columns that the table has now, by their ids."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(batch_size=PREVIEWED), None)
        if batch is None:
            return
        ids = [(each.metadata or {}).get(b"PARQUET:field_id", b"-1") for each in file.schema_arrow]
    by_id = {int(id): column for id, column in zip(ids, batch.columns, strict=True)}
    nothing = [None] * batch.num_rows
    values = [by_id[id].to_pylist() if id in by_id else nothing for id, _ in fields]
    for row in zip(*values, strict=True):
        yield [as_plain(value) for value in row]
