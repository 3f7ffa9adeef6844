"""Rows by key: the last of each in a batch, and how they get into the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Marks rows that delete theirs in the table; never a column of it.
DELETES = "__moldau_deletes"
# A source this small is held in memory, so that its keys tell which files need not be read.
SMALL_BYTES = 64 << 20
_ORDER, _ROW = "__moldau_order", "__moldau_row"


def last_rows(
    batch: DataFrame,
    columns: Sequence[Column],
    keys: Sequence[str],
    order_by: Sequence[str],
    delete_where: str,
) -> DataFrame:
    """These columns and DELETES, of the last row of each key.

    Without `order_by` the last is the one that Spark has last: rows of a topic come in the order of
    its partitions, and a key has its partition.
    """
    from pyspark.sql import functions as f

    order = f.struct(*order_by) if order_by else f.monotonically_increasing_id()
    deletes = f.coalesce(f.expr(delete_where), f.lit(False)) if delete_where else f.lit(False)
    rows = batch.select(f.struct(*columns, deletes.alias(DELETES)).alias(_ROW), order.alias(_ORDER))
    by_key = [f.col(_ROW).getField(key) for key in keys]
    last = rows.groupBy(*by_key).agg(f.max_by(_ROW, _ORDER).alias(_ROW))
    return last.select(f"{_ROW}.*")


def merge(
    table: DeltaTable,
    rows: pa.RecordBatchReader,
    size: int,
    keys: Sequence[str],
    properties: CommitProperties,
) -> None:
    """Merge rows (with DELETES), `size` bytes of files, in one commit; in none if nothing changes.

    This runs in the driver: the table's own merge, which rewrites only files with such keys.
    """
    updates = {_quoted(name): f"source.{_quoted(name)}" for name in rows.schema.names}
    del updates[_quoted(DELETES)]
    (
        table.merge(
            rows,
            " AND ".join(f"target.{_quoted(key)} = source.{_quoted(key)}" for key in keys),
            source_alias="source",
            target_alias="target",
            streamed_exec=size > SMALL_BYTES,
            writer_properties=WriterProperties(compression="ZSTD"),
            commit_properties=properties,
        )
        .when_matched_delete(f"source.{DELETES}")
        .when_matched_update(updates)
        .when_not_matched_insert(updates, f"NOT source.{DELETES}")
        .execute()
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
