"""Upserts of pipelines: the newest row of a key stays, whatever order records are read in."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from moldau.spark.pipeline import Pipeline, PipelineError
from moldau.testing import Broker
from tests.spark.pipeline.files import COUNTS, NOON, SOURCE, event, load, send, table
from tests.spark.topics import Sent, add_partitions, fresh_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROWS = """
[sources.rows]
topic = "{topic}"
schema = "id STRING NOT NULL, lsn BIGINT, value STRING, parts ARRAY<STRING>"
max_records_per_batch = {most}
"""
BY_ID = """
[sinks.state]
from = "{table}"
type = "delta"
path = "lake/state"
keys = ["id"]
"""
DAY_MS = 86_400_000
THEN_MS = int(NOON.timestamp() * 1000)


def row(key: str, value: str, lsn: int | None = 0, **more: Any) -> Sent:
    content = {"id": key, "lsn": lsn, "value": value} | more
    return key.encode(), json.dumps(content).encode(), []


def upserting(
    folder: Path, broker: Broker, topic: str, *more: str, most: int = 1_000_000, of: str = "rows"
) -> Pipeline:
    source = ROWS.replace("{most}", str(most))
    return load(folder, broker, topic, source, *more[1:], BY_ID.replace("{table}", of), *more[:1])


def state(folder: Path) -> dict[str, Any]:
    rows = table(folder / "lake/state")
    assert len({each["id"] for each in rows}) == len(rows)
    return {each["id"]: each["value"] for each in rows}


RAW_ROWS = '''
[sources.rows]
topic = "{topic}"
format = "raw"
max_records_per_batch = 20
[tables.values]
sql = """
    SELECT string(key) AS id, get_json_object(string(value), '$.value') AS value
    FROM (SELECT * FROM rows)
"""
'''


@pytest.mark.slow
@pytest.mark.parametrize("way", ["one batch", "many batches", "many batches of raw records"])
def test_keys_that_moved_with_new_partitions_keep_their_newest_value(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path, way: str
) -> None:
    """In small batches new records of the new partition are read before old ones of the others."""
    broker = moldau_session_broker
    topic = fresh_topic(broker, partitions=2)
    keys = [f"key-{number}" for number in range(50)]
    send(broker, topic, [row(key, "old") for key in keys], partition=None, first_ms=THEN_MS)
    add_partitions(broker, topic, 3)
    later = THEN_MS + DAY_MS
    # The other way round, so that new ones come before old ones of the same keys.
    again = [row(key, "new") for key in reversed(keys)]
    send(broker, topic, again, partition=None, first_ms=later)
    if way == "many batches of raw records":
        sink = BY_ID.replace("{table}", "values")
        pipeline = load(tmp_path, broker, topic, RAW_ROWS, sink)
    else:
        most = 20 if way == "many batches" else 1_000_000
        pipeline = upserting(tmp_path, broker, topic, most=most)
    assert pipeline.check(spark) == []
    pipeline.run(once=True, spark=spark)
    assert state(tmp_path) == dict.fromkeys(keys, "new")


@pytest.mark.slow
def test_within_a_partition_the_offset_counts_and_not_the_time(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker, partitions=2)
    pipeline = upserting(tmp_path, broker, topic)
    hour_ms = 3_600_000
    # Each an hour before the one in front of it.
    send(broker, topic, [row("a", "first")], first_ms=THEN_MS)
    send(broker, topic, [row("a", "second")], first_ms=THEN_MS - hour_ms)
    pipeline.run(once=True, spark=spark)
    assert state(tmp_path) == {"a": "second"}
    send(broker, topic, [row("a", "third")], first_ms=THEN_MS - 2 * hour_ms)
    pipeline.run(once=True, spark=spark)
    assert state(tmp_path) == {"a": "third"}
    # Of another partition, what is older by its time stays out; what is newer comes in.
    send(broker, topic, [row("a", "older")], partition=1, first_ms=THEN_MS - DAY_MS)
    pipeline.run(once=True, spark=spark)
    assert state(tmp_path) == {"a": "third"}
    send(broker, topic, [row("a", "newer")], partition=1, first_ms=THEN_MS)
    pipeline.run(once=True, spark=spark)
    assert state(tmp_path) == {"a": "newer"}


@pytest.mark.slow
def test_order_by_holds_from_batch_to_batch_and_for_deletes(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    ordered = 'order_by = "lsn"\ndelete_where = "value = \'gone\'"\n'
    pipeline = upserting(tmp_path, broker, topic, ordered)
    assert pipeline.check(spark) == []

    def after(*rows: Sent) -> dict[str, Any]:
        send(broker, topic, rows)
        pipeline.run(once=True, spark=spark)
        return state(tmp_path)

    assert after(row("a", "new", 2002999), row("b", "b", 10), row("b", "stale", 9)) == {
        "a": "new",
        "b": "b",
    }
    assert after(row("a", "old", 5), row("b", "gone", 3)) == {"a": "new", "b": "b"}
    # No order is older than any, and the later of two equals counts.
    assert after(row("a", "null", None), row("b", "again", 10), row("b", "last", 10)) == {
        "a": "new",
        "b": "last",
    }
    assert after(row("a", "gone", 2003000), row("b", "b", 11), row("b", "gone", 4)) == {"b": "b"}
    assert {"id", "lsn", "value", "parts"} == table(tmp_path / "lake/state")[0].keys()


SQL = """
[tables.named]
sql = '''
    WITH whole AS (SELECT r.*, upper(value) AS name FROM rows r WHERE value <> 'skipped')
    SELECT concat(w.id, '/', part) AS id, w.name AS value, l.label
    FROM whole w LEFT JOIN VALUES ('a', 'A'), ('b', 'B') AS l(id, label) ON l.id = w.id
    LATERAL VIEW explode(parts) AS part
'''
[tables.all]
sql = "SELECT * FROM named"
"""


@pytest.mark.slow
def test_the_order_of_records_goes_through_sql_and_shows_nowhere(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker, partitions=2)
    pipeline = upserting(tmp_path, broker, topic, "", SQL, of="all")
    assert pipeline.check(spark) == []
    send(broker, topic, [row("a", "new", parts=["x", "y"])], partition=0, first_ms=THEN_MS + 1)
    send(broker, topic, [row("a", "old", parts=["y", "z"])], partition=1, first_ms=THEN_MS)
    pipeline.run(once=True, spark=spark)
    assert state(tmp_path) == {"a/x": "NEW", "a/y": "NEW", "a/z": "OLD"}
    send(broker, topic, [row("a", "older", parts=["x", "z"])], partition=1, first_ms=1)
    pipeline.run(once=True, spark=spark)
    assert state(tmp_path) == {"a/x": "NEW", "a/y": "NEW", "a/z": "OLDER"}
    # A replay of the past changes what it is the newest of, and nothing else.
    pipeline.replay(None, datetime.fromtimestamp(THEN_MS / 1000, UTC), spark=spark)
    assert state(tmp_path) == {"a/x": "NEW", "a/y": "NEW", "a/z": "OLDER"}
    send(broker, topic, [row("b", "two", parts=["x", "x"])])
    pipeline.run(once=True, spark=spark)
    assert state(tmp_path)["b/x"] == "TWO"
    send(broker, topic, [row("b", "skipped", parts=["x"])])
    pipeline.run(once=True, spark=spark)
    assert state(tmp_path)["b/x"] == "TWO"


@pytest.mark.slow
def test_rows_of_one_record_have_no_order_among_them(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    parts = '[tables.parts]\nsql = "SELECT id, explode(parts) AS value FROM rows"\n'
    send(broker, topic, [row("a", "", parts=["x", "y"])])
    with pytest.raises(PipelineError, match="several rows in the batch, and nothing says which"):
        upserting(tmp_path, broker, topic, "", parts, of="parts").run(once=True, spark=spark)
    ordered = upserting(tmp_path, broker, topic, 'order_by = ["value"]\n', parts, of="parts")
    ordered.run(once=True, spark=spark)
    assert state(tmp_path) == {"a": "y"}


OTHER = """
[sources.others]
topic = "{topic}"
schema = "id STRING NOT NULL, lsn BIGINT, value STRING"
"""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT r.id, r.lsn, o.value FROM rows r JOIN others o ON r.id = o.id",
        "SELECT id, lsn, value FROM rows UNION ALL SELECT id, lsn, value FROM others",
        "SELECT DISTINCT id, lsn, value FROM rows",
    ],
)
def test_check_says_where_there_is_no_order(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path, sql: str
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    joined = f'[tables.joined]\nsql = "{sql}"\n'
    pipeline = upserting(tmp_path, broker, topic, "", OTHER, joined, of="joined")
    (problem,) = pipeline.check(spark)
    assert "nothing says which of two rows with the same keys is newer" in problem.message
    assert "give 'order_by'" in problem.message
    assert problem.part == "sink state"
    assert pipeline.file.path.read_text("utf-8").splitlines()[problem.line - 1] == 'keys = ["id"]'
    with pytest.raises(PipelineError, match="nothing says which of two rows"):
        pipeline.run(once=True, spark=spark)
    ordered = upserting(tmp_path, broker, topic, 'order_by = "lsn"', OTHER, joined, of="joined")
    assert ordered.check(spark) == []


@pytest.mark.slow
def test_totals_replace_those_of_earlier_batches_unless_keys_leave_several(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    sink = '[sinks.s]\nfrom = "counts"\ntype = "delta"\npath = "lake/counts"\nkeys = ["name"]\n'
    send(broker, topic, [event(second, number=second % 2) for second in range(70)])
    (problem,) = load(tmp_path, broker, topic, SOURCE, COUNTS, sink).check(spark)
    assert "nor are totals by these keys: give 'order_by'" in problem.message
    ordered = load(tmp_path, broker, topic, SOURCE, COUNTS, sink, 'order_by = "minute"\n')
    ordered.run(once=True, spark=spark)
    assert [each["events"] for each in table(tmp_path / "lake/counts")] == [10]
    # That a name has more than one number, only the records tell.
    numbers = "SELECT name, number, count(*) AS n FROM events GROUP BY name, number"
    fewer = f'[tables.counts]\nsql = "{numbers}"\n' + sink.replace("sinks.s", "sinks.other")
    with pytest.raises(PipelineError, match=r"several rows in the batch, .*; give order_by"):
        load(tmp_path, broker, topic, SOURCE, fewer).run(once=True, spark=spark)
