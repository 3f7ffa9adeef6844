"""Merges of random events on a real Spark, against an oracle in plain Python."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from moldau.spark.lake import LakeError, SchemaConflict
from tests.spark.lake.kinds import KINDS, Kind, rows_of, sink_to, versions_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SCHEMA = "k int, p string, at timestamp, lsn bigint, v string, gone boolean"
Row = tuple[int, str, int, int, str, bool]


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    given = spark.createDataFrame(rows, SCHEMA.replace("timestamp", "bigint"))
    return given.selectExpr("k", "p", "timestamp_seconds(at) AS at", "lsn", "v", "gone")


of_either_kind = pytest.mark.parametrize("kind", KINDS)


def read(kind: Kind, path: Path, *names: str) -> list[tuple[Any, ...]]:
    def plain(value: Any) -> Any:
        return int(value.timestamp()) if hasattr(value, "timestamp") else value

    return sorted(
        (tuple(plain(row[name]) for name in names) for row in rows_of(kind, path)), key=repr
    )


@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.slow)])
def test_a_history_has_every_version_and_no_flag(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    path = tmp_path / "t"
    sink = sink_to(
        kind,
        path,
        app_id="app",
        mode="upsert",
        keys=["k"],
        order_by=["lsn"],
        valid_from="at",
        delete_where="gone",
        scd=2,
    )
    sink.write(frame(spark, [(1, "a", 10, 1, "x", False), (1, "a", 30, 3, "z", False)]), 0)
    sink.write(frame(spark, [(1, "b", 20, 2, "y", False), (2, "a", 5, 1, "w", False)]), 1)
    sink.write(frame(spark, [(2, "a", 40, 9, "", True)]), 2)
    assert read(kind, path, "k", "p", "v", "valid_from", "valid_to", "is_current") == [
        (1, "a", "x", 10, 20, False),
        (1, "a", "z", 30, None, True),
        (1, "b", "y", 20, 30, False),
        (2, "a", "w", 5, 40, False),
    ]
    assert "gone" not in rows_of(kind, path)[0]
    with pytest.raises(SchemaConflict, match="'lsn' is needed for the history, but null in 1 rows"):
        sink.write(frame(spark, [(1, "a", 10, None, "x", False)]), 3)  # type: ignore[list-item]
    with pytest.raises(SchemaConflict, match="'valid_to' is a name that scd = 2 reserves"):
        sink.write(frame(spark, []).selectExpr("*", "at AS valid_to"), 3)
    settings: dict[str, Any] = {"order_by": ["lsn"], "valid_from": "at", "scd": 2}
    other = sink_to(kind, path, app_id="b", mode="upsert", keys=["p"], **settings)
    with pytest.raises(LakeError, match="a history by the keys"):
        other.write(frame(spark, [(1, "a", 10, 1, "x", False)]), 0)


@of_either_kind
@pytest.mark.slow
def test_a_history_does_not_go_on_from_rows_without_one(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    path = tmp_path / "t"
    settings: dict[str, Any] = {"mode": "upsert", "keys": ["k"], "order_by": ["lsn"]}
    sink_to(kind, path, app_id="a", **settings).write(spark.sql("SELECT 1 k, 1 lsn"), 0)
    history = sink_to(kind, path, app_id="b", scd=2, **settings)
    with pytest.raises(LakeError, match="has rows without a history"):
        history.require_fit(spark.sql("SELECT 1 k, 2 lsn").schema)
    with pytest.raises(LakeError, match="has rows without a history"):
        history.write(spark.sql("SELECT 1 k, 2 lsn"), 0)
    assert rows_of(kind, path) == [{"k": 1, "lsn": 1}]


@of_either_kind
def test_an_upsert_without_a_history_is_refused_by_a_table_with_one(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    path = tmp_path / "t"
    settings: dict[str, Any] = {"mode": "upsert", "keys": ["k"], "order_by": ["lsn"]}
    sink_to(kind, path, app_id="a", scd=2, **settings).write(
        spark.sql("SELECT 1 k, lsn FROM VALUES (1), (2) AS (lsn)"), 0
    )
    before = rows_of(kind, path), versions_of(kind, path)
    newer = spark.sql("SELECT 1 k, 3 lsn")
    plain = sink_to(kind, path, app_id="b", **settings)
    with pytest.raises(LakeError, match=r"has a history \(.*\), which an upsert with scd = 1"):
        plain.require_fit(newer.schema)
    with pytest.raises(LakeError, match="set scd = 2, or write to another table"):
        plain.write(newer, 0)
    assert (rows_of(kind, path), versions_of(kind, path)) == before
    # Whoever brings the columns of a history keeps it without our help.
    columns = "k, lsn, valid_from, null AS valid_to, true AS is_current"
    own = newer.selectExpr("*", "lsn AS valid_from").selectExpr(*columns.split(", "))
    sink_to(kind, path, app_id="c", mode="upsert", keys=["k", "valid_from"]).write(own, 0)
    assert len(rows_of(kind, path)) == 3


@of_either_kind
@pytest.mark.slow
def test_a_condition_of_the_merge_decides_which_rows_stay(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    path = tmp_path / "t"
    sink = sink_to(
        kind,
        path,
        app_id="app",
        mode="upsert",
        keys=["k"],
        merge_where="source.v > target.v OR target.p = 'open'",
        delete_where="gone",
    )
    sink.write(
        frame(
            spark,
            [(1, "", 1, 1, "m", False), (2, "open", 1, 1, "m", False), (3, "", 1, 1, "m", False)],
        ),
        0,
    )
    changes = [(k, "", 1, 2, "b", False) for k in (1, 2, 4)]
    sink.write(frame(spark, [*changes, (3, "", 1, 2, "a", True)]), 1)
    assert read(kind, path, "k", "v") == [(1, "m"), (2, "b"), (3, "m"), (4, "b")]
    sink.write(frame(spark, [(3, "", 1, 2, "z", True), (1, "", 1, 2, "n", False)]), 2)
    assert read(kind, path, "k", "v") == [(1, "n"), (2, "b"), (4, "b")]


@of_either_kind
@pytest.mark.slow
def test_random_events_in_random_batches_come_to_what_the_oracle_says(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    luck = random.Random(19)
    lsns = luck.sample(range(400), 300)
    events: list[Row] = [
        (luck.randrange(12), luck.choice("ab"), lsn * 2, lsn, f"v{lsn}", luck.random() < 0.2)
        for lsn in lsns
    ]
    settings: dict[str, Any] = {
        "app_id": "app",
        "mode": "upsert",
        "keys": ["k"],
        "order_by": ["lsn"],
        "delete_where": "gone",
        "partition_by": ["p"],
        "optimize_every": 3,
    }
    first = sink_to(kind, tmp_path / "1", **settings)
    second = sink_to(kind, tmp_path / "2", scd=2, valid_from="at", **settings)
    for batch_id in range(5):
        batch = events[batch_id * 55 : batch_id * 55 + 65]
        rows = frame(spark, batch + luck.choices(batch, k=5)).repartition(3)
        for sink in (first, second):
            sink.write(rows, batch_id)
            assert sink.write(rows, batch_id).skipped
    seen = sorted(set(events[: 4 * 55 + 65]), key=lambda row: (row[0], row[3]))
    latest = {row[0]: row for row in seen}
    left = [(row[0], row[4]) for row in latest.values() if not row[5]]
    assert read(kind, tmp_path / "1", "k", "v") == sorted(left, key=repr)
    history = []
    for row, following in pairwise([*seen, None]):
        assert row is not None
        end = following[2] if following is not None and following[0] == row[0] else None
        if not row[5]:
            history.append((row[0], row[4], row[2], end, end is None))
    found = read(kind, tmp_path / "2", "k", "v", "valid_from", "valid_to", "is_current")
    assert found == sorted(history, key=repr)
