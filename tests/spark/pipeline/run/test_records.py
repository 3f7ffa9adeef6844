"""Records in runs of pipelines: bad ones, tombstones, topics of a pattern, columns that change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark.pipeline import PipelineError
from moldau.testing import Broker
from tests.spark.pipeline.files import (
    COUNTS,
    RAW,
    SOURCE,
    event,
    headers,
    load,
    send,
    table,
    values,
)
from tests.spark.pipeline.run.pipelines import UPSERTED
from tests.spark.topics import Sent, fresh_topic, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_records_that_do_not_parse_become_dead_letters(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    pipeline = load(tmp_path, broker, topic, SOURCE, COUNTS, RAW, UPSERTED)
    bad: list[Sent] = [
        (b"key", b"nonsense", [("own", b"header")]),
        (None, b'{"time": "2024-05-01T12:00:00Z", "number": "many"}', []),
        (None, b'{"name": "no time"}', []),
        (None, None, []),
        (None, b"\xff\xfe", []),
    ]
    send(broker, topic, [event(1), *bad[:3], event(2), *bad[3:]])
    done = pipeline.run(once=True, spark=spark)
    assert done["raw"].written == 2
    assert sum(each.dead_letters for each in done.values()) == 5
    letters = read_by_librdkafka(broker, f"{topic}-dead-letters")
    assert [(row["key"], row["value"]) for row in letters] == [(k, v) for k, v, _ in bad]
    said = [headers(row) for row in letters]
    assert [int(each["moldau.origin.offset"]) for each in said] == [1, 2, 3, 5, 6]
    assert {each["moldau.origin.topic"] for each in said} == {topic.encode()}
    assert {each["moldau.origin.partition"] for each in said} == {b"0"}
    assert said[0]["own"] == b"header"
    reasons = [each["moldau.reason"].decode() for each in said]
    for reason, part in zip(
        reasons, ("not JSON", "$.number", "`time`", "no value", "not JSON"), strict=True
    ):
        assert part in reason


@pytest.mark.slow
def test_a_pattern_does_not_stand_for_the_topics_that_the_pipeline_writes(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    source = SOURCE.replace(
        'topic = "{topic}"', 'pattern = "{topic}"\ndead_letters = "{topic}-bad"'
    )
    sink = '[sinks.out]\nfrom = "events"\ntype = "topic"\ntopic = "{topic}-out"\n'
    pipeline = load(tmp_path, broker, topic, source, sink)
    for second in range(2):
        send(broker, topic, [event(second), (None, b"nonsense", [])])
        pipeline.run(once=True, spark=spark)
    assert len(values(broker, f"{topic}-out")) == 2
    assert len(read_by_librdkafka(broker, f"{topic}-bad")) == 2


@pytest.mark.slow
def test_tombstones_delete_rows_or_are_left_out(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    users = """
[sources.users]
topic = "{topic}"
schema = "id STRING NOT NULL, city STRING"
metadata = ["key"]
tombstones = "row"
[sources.living]
topic = "{topic}"
schema = "id STRING NOT NULL, city STRING"
tombstones = "skip"
[tables.changes]
sql = "SELECT string(_key) AS id, city, id IS NULL AS is_deleted FROM users"
[sinks.users]
from = "changes"
type = "delta"
path = "lake/users"
keys = ["id"]
delete_where = "is_deleted"
[sinks.living]
from = "living"
type = "delta"
path = "lake/living"
"""
    pipeline = load(tmp_path, broker, topic, users)

    def user(name: str, city: str) -> Sent:
        return name.encode(), json.dumps({"id": name, "city": city}).encode(), []

    send(
        broker, topic, [user("a", "Praha"), user("b", "Písek"), (b"b", None, []), (b"c", None, [])]
    )
    done = pipeline.run(once=True, spark=spark)
    assert {row["id"]: row["city"] for row in table(tmp_path / "lake/users")} == {"a": "Praha"}
    assert sum(each.dead_letters for each in done.values()) == 0
    send(broker, topic, [(b"a", None, []), user("b", "Tábor")])
    pipeline.run(once=True, spark=spark)
    assert {row["id"]: row["city"] for row in table(tmp_path / "lake/users")} == {"b": "Tábor"}
    assert [row["id"] for row in sorted(table(tmp_path / "lake/living"), key=str)] == [
        "a",
        "b",
        "b",
    ]
    assert read_by_librdkafka(broker, f"{topic}-dead-letters") == []


@pytest.mark.slow
def test_without_a_topic_for_them_the_first_bad_record_stops_the_pipeline(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    fatal = SOURCE + "dead_letters = false\n"
    send(broker, topic, [event(1), (None, b"nonsense", [])])
    with pytest.raises(PipelineError) as raised:
        load(tmp_path, broker, topic, fatal, RAW).run(once=True, spark=spark)
    (problem,) = raised.value.problems
    assert problem.part == "source events"
    assert problem.message.startswith(f"the record at {topic}-0 offset 1 does not parse: not JSON")
    # Nothing is lost: with a topic for it, the same pipeline goes on.
    load(tmp_path, broker, topic, SOURCE, RAW).run(once=True, spark=spark)
    assert len(table(tmp_path / "lake/raw")) == 1


@pytest.mark.slow
def test_a_column_that_changes_its_type_stops_the_pipeline_and_loses_nothing(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    send(broker, topic, [event(1, number=1)])
    load(tmp_path, broker, topic, SOURCE, RAW).run(once=True, spark=spark)
    changed = SOURCE.replace("number INT", "number STRING")
    send(broker, topic, [event(2, number="two")])
    with pytest.raises(PipelineError) as raised:
        load(tmp_path, broker, topic, changed, RAW).run(once=True, spark=spark)
    (problem,) = raised.value.problems
    assert problem.part == "sink raw"
    assert "column 'number'" in problem.message
    cast = '[tables.t]\nsql = "SELECT time, name, 2 AS number FROM events"\n'
    load(tmp_path, broker, topic, changed, cast, RAW.replace('"events"', '"t"')).run(
        once=True, spark=spark
    )
    assert sorted(row["number"] for row in table(tmp_path / "lake/raw")) == [1, 2]
