"""Upkeep of Iceberg tables."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark.lake import IcebergSink
from moldau.spark.lake.iceberg.catalog import CatalogTable
from moldau.spark.lake.iceberg.upkeep import Upkeep
from tests.spark.lake.batches import numbers, offsets
from tests.spark.lake.iceberg.tables import data_files, duckdb_rows, table_of, values_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

DAY = timedelta(days=1)


def upkeep(retention: timedelta = DAY, max_snapshots: int = 500) -> Upkeep:
    return Upkeep(1, 1, retention, max_snapshots, 128 << 20)


def aged(folder: Path, by: timedelta) -> None:
    """Make every file look older."""
    for path in folder.rglob("*"):
        if path.is_file():
            moment = path.stat().st_mtime - by.total_seconds()
            os.utime(path, (moment, moment))


def test_small_files_become_one_and_unused_files_go(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = IcebergSink(
        "shop.orders", app_id="app", warehouse=str(tmp_path), partition_by=["truncate(100, n)"]
    )
    for batch in range(5):
        first = 10 * batch
        sink.write(numbers(spark, first, first + 10), batch, offsets(first, first + 10))
    table = table_of(tmp_path)
    assert upkeep().compact(spark, table) == 10
    table = table_of(tmp_path)
    assert len(list(table.scan().plan_files())) == 1
    assert values_of(tmp_path, "n") == list(range(50))
    assert upkeep().compact(spark, table) == 0
    # All snapshots are young, so nothing may go, and neither may files that none of them has.
    (tmp_path / "shop" / "orders" / "data" / "left-behind.parquet").write_bytes(b"crashed")
    assert upkeep(max_snapshots=1).expire(table) == 0
    assert upkeep().remove_unused(table, 0) == []
    aged(tmp_path / "shop", 2 * DAY)
    assert [Path(path).name for path in upkeep().remove_unused(table, 0)] == ["left-behind.parquet"]
    assert len(data_files(tmp_path)) == 11
    # Two days later.
    now_ns = time.time_ns() + int(2 * DAY.total_seconds()) * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    assert upkeep(retention=9 * DAY, max_snapshots=3).expire(table_of(tmp_path)) == 3
    assert upkeep().expire(table_of(tmp_path)) == 2
    assert len(table_of(tmp_path).snapshots()) == 1
    removed = upkeep().remove_unused(table_of(tmp_path), 0)
    assert len([path for path in removed if path.endswith(".parquet")]) == 10
    assert len(data_files(tmp_path)) == 1
    table = table_of(tmp_path)
    assert duckdb_rows(table, "SELECT count(*), sum(n) FROM it") == [(50, sum(range(50)))]
    # What it was written by is known all the same.
    assert sink.write(numbers(spark, 0, 99), 4).skipped
    sink.write(numbers(spark, 50, 60), 5, offsets(50, 60))
    assert values_of(tmp_path, "n") == list(range(60))


def test_upkeep_that_fails_leaves_the_batch_and_says_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    IcebergSink("shop.orders", app_id="app", warehouse=str(tmp_path)).write(numbers(spark, 0, 3), 0)
    with pytest.raises(ValueError, match="retention is 0:10:00, but must be 1:00:00 or more"):
        upkeep(timedelta(minutes=10))
    (tmp_path / "catalog.db").write_bytes(b"not a database" * 100)
    upkeep().after(spark, CatalogTable("shop.orders", str(tmp_path)), 0, 0)
    assert "shop.orders: small files could not be joined; trying again later" in caplog.text
    assert "old files could not be removed" in caplog.text
