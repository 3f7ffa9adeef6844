"""Replays: a span of time as a batch."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark.pipeline import Pipeline, PipelineError
from moldau.testing import Broker
from tests.spark.pipeline.files import (
    COUNTS,
    NOON,
    RAW,
    SOURCE,
    event,
    load,
    send,
    table,
    values,
)
from tests.spark.topics import fresh_topic, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

TO_TOPIC = """
[sinks.counted]
from = "counts"
type = "topic"
topic = "{topic}-counts"
"""
FILES = """
[sinks.files]
from = "events"
type = "parquet"
path = "files"
"""
FROM, UNTIL = NOON + timedelta(seconds=30), NOON + timedelta(seconds=90)


@pytest.fixture
def pipeline(moldau_session_broker: Broker, tmp_path: Path) -> Pipeline:
    """Over two minutes of events, whose records have the times of the events."""
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    first_ms = int(NOON.timestamp() * 1000)
    for second in range(0, 120, 10):
        numbered = [event(second + n, number=second + n) for n in range(10)]
        send(broker, topic, numbered, first_ms=first_ms + second * 1000)
    return load(tmp_path, broker, topic, SOURCE, COUNTS, RAW, TO_TOPIC, FILES)


@pytest.mark.slow
def test_a_span_is_written_once_with_all_its_windows(
    spark: SparkSession, moldau_session_broker: Broker, pipeline: Pipeline, tmp_path: Path
) -> None:
    done = pipeline.replay(FROM, UNTIL, spark=spark)
    assert {name: each.rows for name, each in done.items()} == dict.fromkeys(done, 60)
    rows = table(tmp_path / "lake/raw")
    assert sorted(row["number"] for row in rows) == list(range(30, 90))
    (topic,) = pipeline.settings.sources["events"].topics
    sent = values(moldau_session_broker, f"{topic}-counts")
    assert sorted((row["minute"][14:16], row["events"]) for row in sent) == [("00", 30), ("01", 30)]
    assert spark.read.parquet(str(tmp_path / "files")).count() == 60
    assert not (tmp_path / "checkpoints").exists()

    # Where rows are added, a second time is refused before anything is written.
    with pytest.raises(PipelineError, match=r"lake/raw has rows.*--into.*--append"):
        pipeline.replay(FROM, UNTIL, spark=spark)
    assert len(values(moldau_session_broker, f"{topic}-counts")) == 2
    # The very same span into a table changes nothing even so; another one is added.
    pipeline.replay(FROM, UNTIL, sinks=["raw"], append=True, spark=spark)
    assert len(table(tmp_path / "lake/raw")) == 60
    pipeline.replay(UNTIL, None, sinks=["raw"], append=True, spark=spark)
    assert len(table(tmp_path / "lake/raw")) == 90


def test_a_replay_can_go_elsewhere(
    spark: SparkSession, moldau_session_broker: Broker, pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.replay(None, None, sinks=["raw"], into="other/raw", spark=spark)
    assert len(table(tmp_path / "other/raw")) == 120
    assert not (tmp_path / "lake").exists()
    (topic,) = pipeline.settings.sources["events"].topics
    pipeline.replay(FROM, None, sinks=["counted"], into=f"{topic}-again", spark=spark)
    sent = read_by_librdkafka(moldau_session_broker, f"{topic}-again")
    assert sum(json.loads(row["value"])["events"] for row in sent) == 90


@pytest.mark.slow
def test_rows_with_keys_are_replaced_by_what_the_file_says_now(
    spark: SparkSession, moldau_session_broker: Broker, pipeline: Pipeline, tmp_path: Path
) -> None:
    (topic,) = pipeline.settings.sources["events"].topics
    upserted = """
[sinks.upserted]
from = "counts"
type = "delta"
path = "lake/counts"
keys = ["minute", "name"]
"""
    for sql in (COUNTS, COUNTS.replace("count(*)", "10 * count(*)")):
        changed = load(tmp_path, moldau_session_broker, topic, SOURCE, sql, upserted)
        changed.replay(FROM, UNTIL, spark=spark)
    assert sorted(row["events"] for row in table(tmp_path / "lake/counts")) == [300, 300]


def test_a_wrong_choice_of_sinks_is_refused(spark: SparkSession, pipeline: Pipeline) -> None:
    with pytest.raises(PipelineError, match="there is no sink 'rwa'; did you mean 'raw'"):
        pipeline.replay(None, None, sinks=["rwa"], spark=spark)
    with pytest.raises(PipelineError, match="another target needs exactly one sink"):
        pipeline.replay(None, None, into="x", spark=spark)
