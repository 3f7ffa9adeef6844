"""The sink on a real Spark, batch by batch."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from moldau.spark.lake import (
    DeltaSink,
    LakeError,
    OffsetConflict,
    Offsets,
    SchemaConflict,
    Written,
    committed_offsets,
)
from tests.spark.lake.batches import numbers, offsets
from tests.spark.lake.readers import duckdb_rows
from tests.spark.lake.tables import data_files, rows_of, values_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


ALL_TYPES = [
    "id",
    "string(id) s",
    "timestamp'2024-03-31 01:30:00.123456' t",
    "timestamp_ntz'2024-01-01 00:00:00' n",
    "date'2024-02-29' d",
    "cast(id / 3 as decimal(20, 5)) e",
    "binary('\\0x') b",
    "array(id, null) a",
    "map('k', struct(id as x, timestamp'1969-12-31 23:59:59' as y)) m",
    "struct(float(id) as f, array(struct(double('NaN') as z)) as l) st",
    "tinyint(id) i",
    "if(id = 1, null, id > 1) o",
    "cast(null as map<int, int>) nothing",
]


def test_a_batch_that_is_written_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app")
    written = sink.write(numbers(spark, 0, 10), 0, offsets(0, 10))
    assert (written.rows, written.files, written.skipped) == (10, 2, False)
    assert written.bytes == sum((tmp_path / "t" / name).stat().st_size for name in data_files(path))
    sink.write(numbers(spark, 10, 15), 1, offsets(10, 15))
    files = data_files(path)
    for again in (sink, DeltaSink(path, app_id="app")):
        for batch_id in (0, 1):
            assert again.write(numbers(spark, 0, 99), batch_id) == Written(skipped=True)
    assert values_of(path, "n") == list(range(15))
    assert data_files(path) == files
    assert committed_offsets(path, "app") == (1, Offsets.at({"orders": {0: 15}}))
    assert committed_offsets(path, "other") is None
    assert committed_offsets(str(tmp_path / "nowhere"), "app") is None


def test_every_type_arrives_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = spark.range(4).selectExpr(*ALL_TYPES)
    DeltaSink(path, app_id="app").write(frame, 0)
    files = [str(tmp_path / "t" / name) for name in data_files(path)]
    back = spark.read.schema(frame.schema).parquet(*files)
    shown = [row.asDict(recursive=True) for row in back.orderBy("id").collect()]
    assert str(shown) == str([row.asDict(recursive=True) for row in frame.collect()])
    schema = pa.schema(DeltaTable(path).schema().to_arrow())
    assert schema.field("t").type == pa.timestamp("us", tz="UTC")
    assert schema.field("e").type == pa.decimal128(20, 5)
    assert len(rows_of(path)) == 4


def test_other_engines_read_what_was_merged(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(
        path,
        app_id="app",
        mode="upsert",
        keys=["id"],
        order_by=["at"],
        delete_where="is_gone",
        partition_by=["part"],
    )
    made = spark.range(30).selectExpr("id", "id % 3 AS part", "1 AS at", "false AS is_gone")
    sink.write(made, 0)
    changed = spark.range(20, 40).selectExpr(
        "id", "id % 3 AS part", "2 AS at", "id % 2 = 0 AS is_gone", "concat('n', id) AS name"
    )
    sink.write(changed, 1)
    # Older than the deletes, which hold.
    sink.write(made.where("id >= 20"), 2)
    rows = {id: None if id < 20 else f"n{id}" for id in range(40) if id < 20 or id % 2}
    found = duckdb_rows(path, "SELECT id, name FROM it WHERE part < 3 ORDER BY id")
    assert found == list(rows.items())
    lazy = polars.scan_delta(path).sort("id")
    assert lazy.select("id", "name").collect().rows() == list(rows.items())


def test_a_conflict_with_another_writer_is_checked_and_committed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    DeltaSink(path, app_id="one").write(numbers(spark, 0, 1), 0)
    commit = DeltaSink._commit_on
    interruptions = [
        lambda: DeltaSink(path, app_id="two").write(numbers(spark, 1, 2), 0),
        lambda: DeltaSink(path, app_id="two").write(numbers(spark, 2, 3), 1),
    ]

    def interrupted(self: DeltaSink, *arguments: Any) -> None:
        if self.app_id == "one" and interruptions:
            interruptions.pop(0)()
        commit(self, *arguments)

    monkeypatch.setattr(DeltaSink, "_commit_on", interrupted)
    assert not DeltaSink(path, app_id="one").write(numbers(spark, 3, 4), 1).skipped
    assert values_of(path, "n") == [0, 1, 2, 3]


def test_of_two_that_write_the_same_batch_at_once_one_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    DeltaSink(path, app_id="app").write(numbers(spark, 0, 1), 0)
    commit = DeltaSink._commit_on
    both_checked = threading.Barrier(2, timeout=60)
    checked = threading.local()

    def together(self: DeltaSink, *arguments: Any) -> None:
        if not hasattr(checked, "once"):
            checked.once = True
            both_checked.wait()
        commit(self, *arguments)

    monkeypatch.setattr(DeltaSink, "_commit_on", together)
    results: list[Written] = []

    def write() -> None:
        results.append(DeltaSink(path, app_id="app").write(numbers(spark, 1, 3), 1))

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(result.skipped for result in results) == [False, True]
    assert values_of(path, "n") == [0, 1, 2]


def test_many_writers_at_once_all_land(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    problems: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            sink = DeltaSink(path, app_id=f"writer {writer}")
            for batch_id in range(3):
                first = writer * 100 + batch_id * 10
                sink.write(spark.range(first, first + 10, numPartitions=1), batch_id)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert values_of(path, "id") == [w * 100 + n for w in range(3) for n in range(30)]


def test_new_columns_are_added_and_missing_ones_are_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app")
    sink.write(spark.sql("select 1 a, struct(1 x) s"), 0)
    sink.write(spark.sql("select 'b' b, struct('y' y, 2 x) s, tinyint(2) A"), 1)
    sink.write(spark.sql("select 3 a"), 2)
    rows = sorted(rows_of(path), key=lambda row: row["a"])
    assert rows == [
        {"a": 1, "s": {"x": 1, "y": None}, "b": None},
        {"a": 2, "s": {"x": 2, "y": "y"}, "b": "b"},
        {"a": 3, "s": None, "b": None},
    ]


def test_an_incompatible_change_stops_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app")
    sink.write(spark.sql("select 1 a"), 0)
    files, version = data_files(path), DeltaTable(path).version()
    with pytest.raises(SchemaConflict, match=r"'a' is int32 in the table and string in the batch"):
        sink.write(spark.sql("select 'x' a, 1 new"), 1)
    assert (data_files(path), DeltaTable(path).version()) == (files, version)
    sink.write(spark.sql("select 2 a"), 1)
    assert values_of(path, "a") == [1, 2]


def test_a_wider_number_says_how_to_widen_the_table_which_then_takes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app")
    sink.write(spark.sql("SELECT 1 AS n"), 0, offsets(0, 1))
    wide = spark.sql("SELECT 1L << 40 AS n")
    said = "stop what writes to it and rewrite it with n as int64 (docs/lake.md#wider-numbers)"
    with pytest.raises(SchemaConflict, match=re.escape(said)):
        sink.write(wide, 1, offsets(1, 2))
    # As in the docs.
    table = DeltaTable(path).to_pyarrow_dataset()
    schema = pa.schema([("n", pa.int64())])
    rows = pa.RecordBatchReader.from_batches(schema, (b.cast(schema) for b in table.to_batches()))
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")
    again = DeltaSink(path, app_id="app")
    assert again.write(spark.sql("SELECT 1 AS n"), 0, offsets(0, 1)) == Written(skipped=True)
    again.write(wide, 1, offsets(1, 2))
    assert values_of(path, "n") == [1, 1 << 40]


def test_a_table_with_rules_of_its_own_or_other_folders_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    DeltaSink(path, app_id="app", partition_by=["p"]).write(spark.sql("select 1 a, 'x' p"), 0)
    with pytest.raises(LakeError, match=r"is partitioned by \['p'\], not by \['a'\]"):
        DeltaSink(path, app_id="app", partition_by=["a"]).write(spark.sql("select 1 a, 'x' p"), 1)
    # Who does not say so follows the table.
    DeltaSink(path, app_id="app").write(spark.sql("select 2 a, 'y z' p"), 1)
    assert rows_of(path)[0].keys() == {"a", "p"}
    assert sorted((row["a"], row["p"]) for row in rows_of(path)) == [(1, "x"), (2, "y z")]
    DeltaTable(path).alter.add_constraint({"positive": "a > 0"})
    with pytest.raises(LakeError, match=r"cannot follow \(delta.constraints.positive\)"):
        DeltaSink(path, app_id="app").write(spark.sql("select 3 a, 'x' p"), 2)


def test_complete_replaces_all_rows_at_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app", mode="complete")
    for batch_id, end in enumerate((5, 3, 0, 4)):
        sink.write(numbers(spark, 0, end), batch_id)
        assert values_of(path, "n") == list(range(end))
    assert sink.write(numbers(spark, 0, 9), 3).skipped
    assert values_of(path, "n") == list(range(4))


def test_records_that_another_query_has_written_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app")
    sink.write(numbers(spark, 0, 10), 7, offsets(0, 10))
    context = spark.sparkContext
    context.setLocalProperty("sql.streaming.queryId", "another")
    try:
        with pytest.raises(OffsetConflict, match=r'begins at 5;.*startingOffsets=\{"orders"'):
            sink.write(numbers(spark, 5, 12), 0, offsets(5, 12))
        with pytest.raises(OffsetConflict, match="begins at an unknown offset"):
            sink.write(numbers(spark, 0, 12), 0, offsets(-1, 12))
        with pytest.raises(OffsetConflict, match="without offsets we cannot know"):
            sink.write(numbers(spark, 0, 12), 0)
        assert not sink.write(numbers(spark, 10, 12), 0, offsets(10, 12)).skipped
    finally:
        context.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    assert values_of(path, "n") == list(range(12))


def test_an_application_that_only_the_log_has_forgotten_is_not_taken_for_a_new_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app")
    sink.write(numbers(spark, 0, 10), 0, offsets(0, 10))
    DeltaSink(path, app_id="other").write(numbers(spark, 10, 11), 0)
    DeltaTable(path).create_checkpoint()
    for log in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
        log.unlink()
    with pytest.raises(OffsetConflict, match="does not go back far enough"):
        committed_offsets(path, "app")
    context = spark.sparkContext
    context.setLocalProperty("sql.streaming.queryId", "another")
    try:
        with pytest.raises(OffsetConflict, match="does not go back far enough"):
            DeltaSink(path, app_id="app").write(numbers(spark, 0, 10), 0, offsets(0, 10))
    finally:
        context.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    # The query itself needs no more than its number of the batch.
    again = DeltaSink(path, app_id="app")
    assert again.write(numbers(spark, 0, 10), 0, offsets(0, 10)).skipped
    assert not again.write(numbers(spark, 11, 12), 1, offsets(10, 11)).skipped
    assert values_of(path, "n") == list(range(12))


def test_a_batch_without_rows_is_remembered_for_its_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app")
    sink.write(numbers(spark, 0, 0), 0, offsets(0, 10))
    assert committed_offsets(path, "app") == (0, Offsets.at({"orders": {0: 10}}))
    version = DeltaTable(path).version()
    sink.write(numbers(spark, 0, 0), 1, Offsets.at({"orders": {0: 10}}))
    assert DeltaTable(path).version() == version


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "update"},
        {"mode": "upsert"},
        {"keys": ["k"]},
        {"delete_where": "x"},
        {"app_id": ""},
        {"compression": "lzo"},
    ],
)
def test_wrong_settings_are_refused_at_once(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DeltaSink(str(tmp_path), **{"app_id": "app", **wrong})
