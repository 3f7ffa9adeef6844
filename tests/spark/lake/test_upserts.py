"""Upserts on a real Spark: which row of a key counts, within a batch and across batches."""

from __future__ import annotations

import itertools
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from moldau.spark.lake import (
    DeltaSink,
    LakeError,
    Offsets,
    SchemaConflict,
    Written,
    committed_offsets,
)
from tests.spark.lake.batches import offsets
from tests.spark.lake.tables import data_files, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_upsert_replaces_by_key_and_the_last_of_a_batch_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app", mode="upsert", keys=["k"], delete_where="v = 'gone'")
    frame = spark.range(0, 30, numPartitions=3).selectExpr(
        "id % 5 k", "string(id) v", "array(id) l", "map(id, id) m", _order("id")
    )
    assert sink.write(frame, 0, offsets(0, 30)).rows == 5
    assert _by_key(path) == {k: str(25 + k) for k in range(5)}
    changed = [(1, "new"), (2, "x"), (2, "gone"), (7, "gone"), (8, "gone"), (8, "back")]
    changes = spark.createDataFrame(
        [(*row, at) for at, row in enumerate(changed, 30)], "k long, v string, at long"
    ).selectExpr("k", "v", _order("at"))
    sink.write(changes, 1, offsets(30, 36))
    expected = {0: "25", 1: "new", 3: "28", 4: "29", 8: "back"}
    assert _by_key(path) == expected
    assert sink.write(changes, 1) == Written(skipped=True)
    # A batch without effect is in the table all the same.
    sink.write(spark.sql("select 99L k, 'gone' v"), 2, offsets(36, 37))
    assert sink.write(spark.sql("select 99L k, 'again' v"), 2).skipped
    sink.write(spark.sql("select 0L k, 'added' v, 5 more"), 3, offsets(37, 38))
    assert _by_key(path) == expected | {0: "added"}
    assert committed_offsets(path, "app") == (3, Offsets.at({"orders": {0: 38}}))
    # What tasks wrote to be merged is gone again.
    assert not [name for name in data_files(path) if name.startswith("_moldau/part")]


def _order(offset: str, partition: int = 0, time: str = "offset") -> str:
    """SQL of the record that a row was made of; `time` is in seconds, `offset` for the same."""
    return (
        f"struct(timestamp_seconds({offset if time == 'offset' else time}) AS time, 'orders' AS "
        f"topic, {partition} AS partition, bigint({offset}) AS offset) AS _moldau_order"
    )


def _by_key(path: str) -> dict[int, str]:
    rows = rows_of(path)
    assert len({row["k"] for row in rows}) == len(rows)
    return {row["k"]: row["v"] for row in rows}


def test_upsert_goes_by_order_where_one_is_given_and_by_several_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(
        path,
        app_id="app",
        mode="upsert",
        keys=["K-1", "p"],
        order_by=["at"],
        partition_by=["p"],
    )
    batches = [[(1, "a", 3), (1, "a", 1)], [(1, "b", 1), (1, "a", 9)], [(1, "a", 8), (1, "b", 2)]]
    for batch_id, rows in enumerate(batches):
        sink.write(spark.createDataFrame(rows, "`K-1` int, p string, at int"), batch_id)
    assert sorted((row["K-1"], row["p"], row["at"]) for row in rows_of(path)) == [
        (1, "a", 9),
        (1, "b", 2),
    ]


def test_an_older_row_never_replaces_a_newer_one(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(
        path, app_id="app", mode="upsert", keys=["k"], order_by=["a", "B"], delete_where="v = 'x'"
    )
    steps: list[tuple[Any, Any, str, str | None]] = [
        # a, b, v, and what is there then
        (None, None, "first", "first"),
        (None, 2.0, "b", "b"),
        (1, None, "a", "a"),
        (None, 9.0, "older", "a"),
        (1, None, "equal", "equal"),
        (1, 1.0, "newer", "newer"),
        (1, float("nan"), "no number is the greatest", "no number is the greatest"),
        (1, 5.0, "x", "no number is the greatest"),
        (0, 10.0, "older", "no number is the greatest"),
        (2, None, "x", None),
        # A row that is gone stays so for older ones.
        (0, 0.0, "back", None),
        (1, 9.0, "back", None),
        (2, 0.0, "back", "back"),
    ]
    for batch_id, (a, b, value, expected) in enumerate(steps):
        rows = spark.createDataFrame([(1, a, b, value)], "k int, a int, b double, v string")
        sink.write(rows.withColumnRenamed("b", "B"), batch_id)
        assert [row["v"] for row in rows_of(path)] == ([] if expected is None else [expected]), a


def test_rows_that_nothing_puts_in_order_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app", mode="upsert", keys=["k"])
    twice = spark.createDataFrame([(1, "a"), (1, "b"), (2, "c"), (2, "c")], "k int, v string")
    with pytest.raises(LakeError, match="1 or more of k have several rows in the batch, and noth"):
        sink.write(twice, 0)
    assert rows_of(path) == []
    same_record = twice.selectExpr("*", _order("7"))
    with pytest.raises(LakeError, match="nothing says which row is newer; give order_by"):
        sink.write(same_record, 0)
    # The same row twice is no question, and a later batch is newer than an earlier one.
    sink.write(twice.where("v <> 'a'"), 0)
    sink.write(spark.sql("select 1 k, 'z' v"), 1)
    assert _by_key(path) == {1: "z", 2: "c"}
    with pytest.raises(SchemaConflict, match=r"'v' is .*, which has no order"):
        DeltaSink(
            str(tmp_path / "u"), app_id="app", mode="upsert", keys=["k"], order_by=["v"]
        ).write(spark.sql("select 1 k, array(1) v"), 0)


def test_records_of_other_partitions_are_compared_by_time_and_of_the_same_by_offset(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app", mode="upsert", keys=["k"])

    def record(value: str, partition: int, offset: int, time: int) -> DataFrame:
        order = _order(str(offset), partition, str(time))
        return spark.sql(f"select 1 k, '{value}' v, {order}")

    numbers = itertools.count()

    def after(*records: DataFrame) -> str:
        sink.write(reduce(DataFrame.union, records), next(numbers))
        return _by_key(path)[1]

    assert after(record("early", 0, 8, 50), record("late", 0, 9, 10), record("x", 1, 99, 9)) == (
        "late"
    )
    assert after(record("time", 1, 0, 11)) == "time"
    assert after(record("stale", 0, 10, 10)) == "time"
    assert after(record("same partition", 1, 5, 1)) == "same partition"
    # A topic that was made anew counts from zero.
    assert after(record("anew", 1, 3, 100)) == "anew"
    assert after(record("read again", 1, 2, 99)) == "anew"


def test_upsert_refuses_rows_without_a_key(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, app_id="app", mode="upsert", keys=["k"])
    with pytest.raises(SchemaConflict, match="'k' is a key, but null in 1 rows"):
        sink.write(spark.sql("select * from values (1, 'a'), (null, 'b') as t(k, v)"), 0)
    with pytest.raises(SchemaConflict, match="'k' is a key, but not in the batch"):
        sink.write(spark.sql("select 'a' v"), 0)
    assert rows_of(path) == []
