"""Upserts that are scattered over a whole table, beside what it takes to write the table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.tasks import Merged, MergeScattered
from moldau.bench.errors import BenchFailed
from moldau.bench.load.spark import stop
from moldau.bench.proc import highest_memory
from moldau.spark import session
from moldau.spark.lake import DeltaSink, IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SLOTS = 2
_NAME = "bench.customers"


def merge_scattered(task: MergeScattered) -> Merged:
    folder = Path(task.folder)
    config = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(_SLOTS),
    }
    spark = session("bench", master=f"local[{_SLOTS}]", config=config)
    try:
        return _merge(spark, task, folder / "table")
    finally:
        stop(spark)


def _merge(spark: SparkSession, task: MergeScattered, table: Path) -> Merged:
    # The first write of a Spark compiles.
    _sink(task, table.with_name("other"), "append").write(_rows(spark, _SLOTS), 0)
    started = time.monotonic()
    _sink(task, table, "append").write(_rows(spark, task.rows), 0)
    write_s = time.monotonic() - started
    sink = _sink(task, table, "upsert")
    merges: list[float] = []
    with highest_memory() as highest:
        for number in range(task.merges + 1):
            changes = _changes(spark, task, number)
            started = time.monotonic()
            sink.write(changes, number)
            merges.append(time.monotonic() - started)
    changed = _changed(task, table)
    if changed != task.changes * (task.merges + 1):
        raise BenchFailed(f"{changed} rows were changed by {task.changes} upserts, several times")
    return Merged(write_s, merges[1:], highest[0])


def _sink(task: MergeScattered, table: Path, mode: Any) -> DeltaSink | IcebergSink:
    settings: dict[str, Any] = {"app_id": mode, "mode": mode}
    if mode == "upsert":
        settings |= {"keys": ["id"], "order_by": ["lsn"]}
    if task.kind == "delta":
        return DeltaSink(str(table), **settings)
    return IcebergSink(_NAME, warehouse=str(table), **settings)


def _rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, _SLOTS).selectExpr(*_columns("0"))


def _changes(spark: SparkSession, task: MergeScattered, number: int) -> DataFrame:
    """As many rows, evenly spread over all keys, and others each time."""
    apart = task.rows // task.changes
    keys = spark.range(0, task.changes, 1, 1).selectExpr(f"id * {apart} + {number} AS id")
    return keys.selectExpr(*_columns(str(number + 1)))


def _columns(lsn: str) -> tuple[str, ...]:
    return (
        "id",
        f"bigint({lsn}) AS lsn",
        "concat('customer ', hash(id)) AS name",
        "double(hash(id, 1)) AS turnover",
        "timestamp_seconds(1700000000 + id) AS since",
    )


def _changed(task: MergeScattered, table: Path) -> int:
    if task.kind == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(str(table)).to_pyarrow_table(columns=["lsn"], filters=[("lsn", ">", 0)])
        return int(rows.num_rows)
    from moldau.spark.lake.iceberg.catalog import CatalogTable

    opened = CatalogTable(_NAME, str(table)).open()
    assert opened is not None
    return int(opened.scan(row_filter="lsn > 0").to_arrow().num_rows)
