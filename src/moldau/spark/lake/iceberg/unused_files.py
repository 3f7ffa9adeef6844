"""Unused files of a table: in its folders, and in no snapshot or list that it still has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.iceberg.store import TableStore
from moldau.spark.lake.iceberg.target import deleted_keys_of
from moldau.spark.lake.merge.deleted_keys import files_that_count

if TYPE_CHECKING:
    from pyiceberg.table import Table


def unused_files(table: Table, older_than: timedelta) -> list[str]:
    """Remove files that were written longer ago than that and are not used; return their paths."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise LakeError(f"files are not listed with {type(io).__name__}; remove them by hand")
    before = datetime.now(UTC) - older_than
    found: dict[str, Any] = {}
    for folder in (TableStore.of(table).uri, f"{table.location().rstrip('/')}/metadata"):
        found |= _old_files(io, folder, before)
    # The table is looked at after its folders: what was committed in between is used.
    table = table.refresh()
    used = _used(table, io) | _deleted_keys(table, io)
    unused = [path for path in found if path not in used]
    for path in unused:
        found[path].delete_file(path)
    return unused


def _old_files(io: Any, folder: str, before: datetime) -> dict[str, Any]:
    """Return the paths of old files in a folder, each with the file system that has it."""
    from pyarrow.fs import FileSelector, FileType

    scheme, netloc, path = io.parse_location(folder)
    system = io.fs_by_scheme(scheme, netloc)
    listed = system.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    return {
        info.path: system
        for info in listed
        if info.type == FileType.File and info.mtime is not None and info.mtime < before
    }


def _used(table: Table, io: Any) -> set[str]:
    metadata = table.metadata
    locations = {table.metadata_location}
    locations.update(entry.metadata_file for entry in metadata.metadata_log)
    locations.update(each.statistics_path for each in metadata.statistics)
    locations.update(each.statistics_path for each in metadata.partition_statistics)
    manifests = {}
    for snapshot in table.snapshots():
        locations.add(snapshot.manifest_list)
        manifests.update({each.manifest_path: each for each in snapshot.manifests(io)})
    for path, manifest in manifests.items():
        locations.add(path)
        entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
        locations.update(entry.data_file.file_path for entry in entries)
    return {io.parse_location(each)[2] for each in locations}


def _deleted_keys(table: Table, io: Any) -> set[str]:
    """Return the paths of the list of deleted keys that counts; LakeError if it cannot be read."""
    number = deleted_keys_of(table)
    if number is None:
        return set()
    store = TableStore.of(table)
    return {io.parse_location(store.path(name))[2] for name in files_that_count(store, number)}
