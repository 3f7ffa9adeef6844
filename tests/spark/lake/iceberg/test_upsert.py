"""Upserts into Iceberg tables, against plain Python over the same events."""

from __future__ import annotations

import random
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from moldau.spark.lake import IcebergSink, LakeError, SchemaConflict, Written
from moldau.spark.lake.iceberg.commit import Commit
from tests.spark.lake.iceberg.tables import (
    data_files,
    duckdb_rows,
    rows_of,
    table_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

Event = tuple[int, int, str, bool]
COLUMNS = "id int, at int, city string, gone boolean"


def sink_to(warehouse: Path, **settings: Any) -> IcebergSink:
    return IcebergSink(
        "shop.orders",
        app_id="app",
        warehouse=str(warehouse),
        mode="upsert",
        keys=["id"],
        **settings,
    )


def left(events: list[Event]) -> dict[int, tuple[int, int, str]]:
    """The last event of each key that is no delete, however they came."""
    last = {event[0]: event for event in sorted(events, key=lambda each: each[1])}
    return {event[0]: event[:3] for event in last.values() if not event[3]}


def test_random_histories_end_as_plain_python_ends_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(7)
    by = ["bucket(3, id)", "city"]
    sink = sink_to(
        tmp_path, order_by=["at"], delete_where="gone", partition_by=by, optimize_every=3
    )
    batches: list[list[Event]] = []
    for number in range(4):
        size = 300 if number == 3 else 40
        moments = chance.sample(range(10_000), size)
        batch = [
            (chance.randrange(60), at, chance.choice("abc"), chance.random() < 0.2)
            for at in moments
        ]
        batches.append(batch)
        sink.write(spark.createDataFrame(batch, COLUMNS), number)
        state = left(list(chain.from_iterable(batches)))
        # A batch that runs again, and an earlier one, change nothing.
        assert sink.write(spark.createDataFrame(batches[0], COLUMNS), number).skipped
        found = {row["id"]: tuple(row.values()) for row in rows_of(tmp_path)}
        assert found == state
        assert len(rows_of(tmp_path)) == len(state)
    # What tasks wrote to be merged is gone again.
    assert not [name for name in data_files(tmp_path) if "_moldau/part" in name]
    count, total = duckdb_rows(table_of(tmp_path), 'SELECT count(*), sum("at") FROM it')[0]
    assert (count, total) == (len(state), sum(event[1] for event in state.values()))


def test_a_rival_that_commits_first_is_merged_with(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the merge and its commit, another writer adds a row with one of the keys."""
    sink = sink_to(tmp_path, order_by=["at"])
    sink.write(spark.createDataFrame([(1, 1, "a", False)], COLUMNS), 0)
    commit_once = Commit.is_done_once
    rows = pa.table(
        {
            "id": pa.array([2], pa.int32()),
            "at": pa.array([9], pa.int32()),
            "city": ["rival"],
            "gone": [False],
        }
    )
    rivals = [rows]

    def after_the_rival(commit: Commit) -> bool:
        if rivals:
            table_of(tmp_path).append(rivals.pop())
        return commit_once(commit)

    monkeypatch.setattr(Commit, "is_done_once", after_the_rival)
    batch = [(1, 2, "b", False), (2, 3, "late", False)]
    assert not sink.write(spark.createDataFrame(batch, COLUMNS), 1).skipped
    found = sorted((row["id"], row["city"]) for row in rows_of(tmp_path))
    assert found == [(1, "b"), (2, "rival")]
    assert sink.write(spark.createDataFrame(batch, COLUMNS), 1) == Written(skipped=True)


def test_columns_that_a_batch_lacks_stay_and_files_without_its_keys_are_left_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = sink_to(tmp_path, order_by=["at"])
    for number in range(3):
        rows = [(10 * number + each, 1, "a", False) for each in range(10)]
        sink.write(spark.createDataFrame(rows, COLUMNS).coalesce(1), number)
    before = {task.file.file_path for task in table_of(tmp_path).scan().plan_files()}
    sink.write(spark.createDataFrame([(15, 2)], "id int, at bigint"), 3)
    after = {task.file.file_path for task in table_of(tmp_path).scan().plan_files()}
    assert len(before - after) == 1
    found = {row["id"]: (row["at"], row["city"]) for row in rows_of(tmp_path)}
    assert found == {each: (2 if each == 15 else 1, "a") for each in range(30)}


def test_rows_without_a_key_or_an_order_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SchemaConflict, match="'id' is a key, but null in 1 rows or more"):
        sink_to(tmp_path).write(spark.sql("SELECT cast(null AS int) id, 1 at"), 0)
    twice = spark.createDataFrame([(1, 1, "a", False), (1, 1, "b", False)], COLUMNS)
    with pytest.raises(LakeError, match="nothing says which row is newer; give order_by"):
        sink_to(tmp_path).write(twice, 0)
    assert rows_of(tmp_path) == []
    with pytest.raises(ValueError, match="keys are needed for upsert"):
        IcebergSink("shop.orders", app_id="a", warehouse=str(tmp_path), mode="upsert")
