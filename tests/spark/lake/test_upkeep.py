"""Compaction and vacuum: the content stays, and so does what is exactly once."""

from __future__ import annotations

import logging
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from moldau.spark.lake import DeltaSink, Offsets, Written, committed_offsets
from moldau.spark.lake.upkeep import Upkeep
from tests.spark.lake.tables import data_files, values_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

OLD_S = 30 * 86400


def write_small(spark: SparkSession, sink: DeltaSink, batches: range) -> None:
    for batch_id in batches:
        frame = spark.range(batch_id * 2, batch_id * 2 + 2, numPartitions=1)
        sink.write(frame, batch_id, Offsets({"orders": {0: (batch_id * 2, batch_id * 2 + 2)}}))


def test_small_files_are_joined_every_so_many_batches_and_nothing_else_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app", optimize_every=9, vacuum_every=0)
    write_small(spark, sink, range(8))
    assert len(DeltaTable(path).file_uris()) == 8
    write_small(spark, sink, range(8, 9))
    assert len(DeltaTable(path).file_uris()) == 1
    assert values_of(path, "id") == list(range(18))
    assert sink.write(spark.range(99), 8) == Written(skipped=True)
    assert committed_offsets(path, "app") == (8, Offsets.at({"orders": {0: 18}}))
    write_small(spark, sink, range(9, 11))
    assert values_of(path, "id") == list(range(22))


def upkeep(retention: timedelta = timedelta(hours=1)) -> Upkeep:
    return Upkeep(1, 1, retention, 128 << 20)


def test_few_small_files_are_not_worth_it(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_small(spark, DeltaSink(path, app_id="app", optimize_every=1), range(3))
    assert len(DeltaTable(path).file_uris()) == 3
    assert not upkeep().compact(DeltaTable(path))


def test_vacuum_removes_what_failed_batches_left_but_nothing_young(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    write_small(spark, DeltaSink(path, app_id="app"), range(2))
    known = data_files(path)
    old_s = time.time() - OLD_S
    for name in ("part-00009-old.parquet", "part-00009-young.parquet"):
        (tmp_path / "t" / name).write_bytes(b"half a file")
    os.utime(tmp_path / "t" / "part-00009-old.parquet", (old_s, old_s))
    for name in known:
        os.utime(tmp_path / "t" / name, (old_s, old_s))
    # A batch that took longer than the old file's age may still be on its way to commit it.
    assert upkeep().vacuum(DeltaTable(path), known_longest_ms=OLD_S * 1000) == []
    assert upkeep().vacuum(DeltaTable(path), known_longest_ms=5) == ["part-00009-old.parquet"]
    assert data_files(path) == known | {"part-00009-young.parquet"}
    assert values_of(path, "id") == list(range(4))


def test_the_table_s_own_retention_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_small(spark, DeltaSink(path, app_id="app"), range(1))
    (tmp_path / "t" / "old.parquet").write_bytes(b"half a file")
    old_s = time.time() - OLD_S
    os.utime(tmp_path / "t" / "old.parquet", (old_s, old_s))
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 40 days"})
    assert upkeep().vacuum(DeltaTable(path), 0) == []
    assert upkeep(timedelta(days=50)).vacuum(DeltaTable(path), 0) == []
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 2 days"})
    assert upkeep().vacuum(DeltaTable(path), 0) == ["old.parquet"]


def test_upkeep_that_fails_is_logged_and_the_batch_stays(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise DeltaError("files were removed by somebody else")

    monkeypatch.setattr(Upkeep, "compact", fail)
    monkeypatch.setattr(Upkeep, "vacuum", fail)
    path = str(tmp_path / "t")
    with caplog.at_level(logging.WARNING, "moldau.spark"):
        sink = DeltaSink(path, app_id="app", optimize_every=1, vacuum_every=1)
        write_small(spark, sink, range(1))
    assert values_of(path, "id") == [0, 1]
    assert "small files could not be merged; trying again later: files were removed" in caplog.text
    assert "old files could not be removed; trying again later: files were removed" in caplog.text


def test_a_retention_that_would_hurt_batches_in_flight_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 1:00:00 or more"):
        upkeep(timedelta(minutes=59))
