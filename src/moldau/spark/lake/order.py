"""The order of rows with the same keys: which one is newer, in a batch and against the table.

There are three ways to know:

columns   `order_by` names columns; the greater row is newer, and null comes before everything.
          They are in the table too, so an older row never replaces a newer one.
records   the batch has RECORD_ORDER, which says of which record each row was made. Within a
          partition the later offset is newer, between partitions the later time. The column is
          kept in the table, so that this holds from batch to batch.
batches   neither: a batch replaces what was there before it. Within a batch nothing tells which
          row is newer, so two different rows with the same keys are an error.

With both, `order_by` goes first and records decide between equals of a batch; then RECORD_ORDER is
not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.spark.names import ORDER_FIELDS, RECORD_ORDER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Marks rows that delete theirs in the table, and those that are the last of their keys beyond
# doubt (null if not); neither is a column of the table.
DELETES = "__moldau_deletes"
ALONE = "__moldau_alone"
_ROW, _HASH, _OTHER = "__moldau_row", "__moldau_hash", "__moldau_other"


def record_order() -> Column:
    """Return the column by which DeltaSink knows of which record a row was made.

    Select it from a stream of `format("moldau")` beside the columns of the table.
    """
    from pyspark.sql import functions as f

    parts = [f.col(of).alias(name) for name, of in ORDER_FIELDS.items()]
    return f.struct(*parts).alias(RECORD_ORDER)


def last_rows(
    batch: DataFrame,
    columns: Sequence[Column],
    keys: Sequence[str],
    order_by: Sequence[str],
    delete_where: str,
) -> DataFrame:
    """These columns with DELETES and ALONE, of the last row of each key.

    `order_by` are names among the columns.
    """
    from pyspark.sql import functions as f

    deletes = f.coalesce(f.expr(delete_where), f.lit(False)) if delete_where else f.lit(False)
    record = [RECORD_ORDER] if RECORD_ORDER in batch.columns else []
    rows = batch.select(f.struct(*columns, deletes.alias(DELETES)).alias(_ROW), *record)
    rows = rows.withColumn(_HASH, _hash(rows))
    by_key = [f.col(_ROW).getField(key) for key in keys]
    wanted = [f.col(_ROW).getField(name) for name in order_by]
    time, topic, partition, offset = (f"{RECORD_ORDER}.{name}" for name in ORDER_FIELDS)
    # Between equals the hash decides, so that a batch that is run again comes to the same; a
    # second choice, with the hash turned around, tells whether it had to decide.
    order: list[Column | str] = [*wanted, *([offset] if record else [])]
    turned = f.struct(*order, f.bitwise_not(_HASH))
    last = rows.groupBy(*by_key, *([topic, partition] if record else [])).agg(
        *(f.max_by(name, f.struct(*order, _HASH)).alias(name) for name in (_ROW, _HASH, *record)),
        f.max_by(_HASH, turned).alias(_OTHER),
    )
    is_alone = f.lit(True) if order_by else f.when(f.col(_HASH) == f.col(_OTHER), f.lit(True))
    last = last.withColumn(ALONE, is_alone)
    if record:
        newest = f.struct(*wanted, time, topic, partition)
        last = last.groupBy(*by_key).agg(
            *(f.max_by(name, newest).alias(name) for name in (_ROW, ALONE))
        )
    return last.select(f"{_ROW}.*", ALONE)


def _hash(rows: DataFrame) -> Column:
    from pyspark.sql import functions as f

    # Spark has no hash of maps.
    has_maps = "map<" in rows.schema[_ROW].dataType.simpleString()
    return f.xxhash64(f.to_json(_ROW) if has_maps else f.col(_ROW))
