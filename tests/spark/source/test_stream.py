"""Streams on a real Spark: checkpoints, restarts, and topic to topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.asking import Asker
from tests.spark.queries import wait_until
from tests.spark.topics import (
    add_partitions,
    delete_topic,
    fresh_topic,
    numbered,
    produce,
    read_by_librdkafka,
    varied,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def stream(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap)
    given = {"subscribe": topic, "startingOffsets": "earliest"} | options
    return reader.options(**given).load()


def to_topic(
    frame: DataFrame, broker: Broker, topic: str, checkpoint: Path, **trigger: Any
) -> StreamingQuery:
    writer = frame.writeStream.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap)
    writer = writer.option("topic", topic).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def values(broker: Broker, topic: str) -> list[int]:
    return sorted(int(row["value"]) for row in read_by_librdkafka(broker, topic))


@pytest.mark.slow
def test_a_stream_goes_on_where_its_checkpoint_says(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    source, target = fresh_topic(broker, partitions=2), fresh_topic(broker)
    frame = stream(spark, broker, source, columns="value", maxOffsetsPerTrigger="40")
    produce(broker, source, numbered(0, 100), per_batch=10)
    query = to_topic(frame, broker, target, tmp_path / "checkpoint")
    query.awaitTermination()
    assert len([each for each in query.recentProgress if each["numInputRows"] > 0]) >= 3
    assert values(broker, target) == list(range(100))
    produce(broker, source, numbered(100, 30), partition=1)
    add_partitions(broker, source, 3)
    produce(broker, source, numbered(130, 20), partition=2)
    to_topic(frame, broker, target, tmp_path / "checkpoint").awaitTermination()
    assert values(broker, target) == list(range(150))


@pytest.mark.slow
def test_a_stream_from_the_end_that_dies_in_its_first_batch_misses_nothing_after_it(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    source = fresh_topic(broker)
    produce(broker, source, numbered(0, 10))
    frame = stream(spark, broker, source, columns="value", startingOffsets="latest")
    seen: list[int] = []

    def die(*_: object) -> None:
        raise RuntimeError("dies")

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(int(row["value"]) for row in batch.collect())

    for act in (die, keep):
        writer = frame.writeStream.foreachBatch(act).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        if act is die:
            with pytest.raises(StreamingQueryException, match="dies"):
                query.awaitTermination()
            produce(broker, source, numbered(10, 5))
    query.awaitTermination()
    assert seen == list(range(10, 15))


def test_topic_to_topic_keeps_keys_values_and_headers(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    source, target = fresh_topic(broker), fresh_topic(broker)
    produce(broker, source, varied(200), codec="zstd")
    frame = stream(spark, broker, source, includeHeaders="true")
    copied = frame.select("key", "value", "headers", "partition")
    to_topic(copied, broker, target, tmp_path / "checkpoint").awaitTermination()
    parts = ("key", "value", "headers", "offset")
    assert [[row[name] for name in parts] for row in read_by_librdkafka(broker, target)] == [
        [row[name] for name in parts] for row in read_by_librdkafka(broker, source)
    ]


@pytest.mark.slow
def test_a_running_stream_survives_restarts_of_the_broker(
    spark: SparkSession, moldau_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_broker
    source = fresh_topic(broker)
    frame = stream(spark, broker, source, columns="value").selectExpr("int(string(value)) number")
    query = frame.writeStream.format("memory").queryName("restarts").start()
    try:
        for first in (0, 100, 200):
            produce(broker, source, numbered(first, 100))
            wait_until(lambda: spark.table("restarts").count() == first + 100, query)  # noqa: B023
            broker.stop()
            broker.start()
        numbers = [row["number"] for row in spark.table("restarts").collect()]
        assert sorted(numbers) == list(range(300))
    finally:
        query.stop()


def test_a_topic_that_was_created_again_stops_the_stream(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    source, target = fresh_topic(broker), fresh_topic(broker)
    frame = stream(spark, broker, source, columns="value")
    produce(broker, source, numbered(0, 10))
    to_topic(frame, broker, target, tmp_path / "checkpoint").awaitTermination()
    delete_topic(broker, source)
    broker.create_topic(source)
    produce(broker, source, numbered(0, 20))
    query = to_topic(frame, broker, target, tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match=f"'{source}' was deleted and created again"):
        query.awaitTermination()
    assert values(broker, target) == list(range(10))


def test_progress_is_committed_to_the_group_that_is_named(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    source, target = fresh_topic(broker), fresh_topic(broker)
    produce(broker, source, numbered(0, 25))
    frame = stream(spark, broker, source, columns="value", commitGroup="spark-lag")
    to_topic(frame, broker, target, tmp_path / "checkpoint").awaitTermination()
    with Asker(broker) as asker:
        group = {
            "group_id": "spark-lag",
            "topics": [{"name": source, "partition_indexes": [0]}],
        }
        answer = asker.ask(Api.OFFSET_FETCH, 8, groups=[group])
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 25
