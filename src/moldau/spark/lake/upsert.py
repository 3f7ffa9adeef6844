"""Upserts: rows by key, merged into a table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties

from moldau.spark.lake.order import ALONE, DELETES, quoted

# Columns that tasks write for the merge beside those of the table.
MARKS = (pa.field(DELETES, pa.bool_()), pa.field(ALONE, pa.bool_()))
# A source this small is held in memory, so that its keys tell which files need not be read.
SMALL_BYTES = 64 << 20


def merge(
    table: DeltaTable,
    rows: pa.RecordBatchReader,
    size: int,
    keys: Sequence[str],
    older: str,
    properties: CommitProperties,
) -> None:
    """Merge rows (with MARKS), `size` bytes of files, in one commit; in none if nothing changes.

    Rows of which the condition `older` holds leave those of the table as they are. This runs in the
    driver: the table's own merge, which rewrites only files with such keys.
    """
    marks = {mark.name for mark in MARKS}
    columns = [quoted(name) for name in rows.schema.names if name not in marks]
    updates = {name: f"source.{name}" for name in columns}
    is_newer = f"NOT {older}" if older else "true"
    (
        table.merge(
            rows,
            " AND ".join(f"target.{quoted(key)} = source.{quoted(key)}" for key in keys),
            source_alias="source",
            target_alias="target",
            streamed_exec=size > SMALL_BYTES,
            writer_properties=WriterProperties(compression="ZSTD"),
            commit_properties=properties,
        )
        .when_matched_delete(f"source.{DELETES} AND {is_newer}")
        .when_matched_update(updates, is_newer)
        .when_not_matched_insert(updates, f"NOT source.{DELETES}")
        .execute()
    )
