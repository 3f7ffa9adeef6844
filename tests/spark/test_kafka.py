"""The source and the sink against Apache Kafka itself.

Topics are created with names of their own and deleted again: it may be somebody's.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from moldau.testing.waiting import until
from tests.spark.topics import Sent, numbered, produce, read_by_librdkafka, varied

WITHIN_S = 60.0

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


class Kafka:
    """A running Kafka, and the topics that were made in it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self._topics: set[str] = set()

    def topic(self, partitions: int = 1, name: str = "", **configs: str) -> str:
        name = name or f"moldau-test-{uuid.uuid4().hex[:8]}"
        config = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)

        def is_created() -> bool:
            # A name is free again only a moment after its topic was deleted.
            try:
                self.admin.create_topics([new])[name].result()
            except KafkaException as problem:
                if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        until(is_created)
        self._topics.add(name)
        return name

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()
        self._topics.discard(topic)

    def clean_up(self) -> None:
        for topic in list(self._topics):
            self.delete(topic)


@pytest.fixture
def kafka(kafka_bootstrap: str) -> Iterator[Kafka]:
    kafka = Kafka(kafka_bootstrap)
    yield kafka
    kafka.clean_up()


def load(spark: SparkSession, kafka: Kafka, **options: str) -> DataFrame:
    reader = spark.read.format("moldau").option("kafka.bootstrap.servers", kafka.bootstrap)
    return reader.options(**options).load()


def copy_stream(
    spark: SparkSession, kafka: Kafka, source: str, target: str, checkpoint: Path, **options: str
) -> None:
    """Everything that is there now, from topic to topic."""
    reader = spark.readStream.format("moldau").option("kafka.bootstrap.servers", kafka.bootstrap)
    given = {"subscribe": source, "startingOffsets": "earliest"} | options
    rows = reader.options(**given).load().select("key", "value")
    writer = rows.writeStream.format("moldau").option("kafka.bootstrap.servers", kafka.bootstrap)
    writer = writer.option("topic", target).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def values_of(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


def test_all_codecs_read_as_librdkafka_reads_them(spark: SparkSession, kafka: Kafka) -> None:
    expected, topics = [], []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topics.append(kafka.topic(partitions=2))
        produce(kafka, topics[-1], varied(300), codec=codec, partition=None)
        expected += read_by_librdkafka(kafka, topics[-1], 2)
    frame = load(
        spark, kafka, subscribe=",".join(topics), includeHeaders="true", minPartitions="13"
    )
    assert len(expected) == 1500
    assert rows_of(frame) == sorted(
        expected, key=lambda row: (row["topic"], row["partition"], row["offset"])
    )


def test_times_are_looked_up_and_compaction_leaves_no_gap_to_report(
    spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.topic(
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )
    now_ms = int(time.time() * 1000)
    records: list[Sent] = [(b"key-%d" % (n % 10), b"%d" % n, []) for n in range(200)]
    produce(kafka, topic, records, first_ms=now_ms, per_batch=20)
    frame = load(spark, kafka, subscribe=topic, startingTimestamp=str(now_ms + 150))
    assert values_of(rows_of(frame)) == list(range(150, 200))

    def is_compacted() -> bool:
        # Only closed segments are compacted, and only a new record closes one.
        produce(kafka, topic, [(b"last", b"1000", [])])
        return len(read_by_librdkafka(kafka, topic)) < 150

    until(is_compacted)
    expected = read_by_librdkafka(kafka, topic)
    kept = rows_of(load(spark, kafka, subscribe=topic))
    assert {row["key"] for row in kept} == {row["key"] for row in expected}
    assert {row["offset"] for row in kept} <= set(range(expected[-1]["offset"] + 1))


def test_aborted_transactions_and_control_records_are_left_out(
    spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.topic()
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-writer"}
    )
    producer.init_transactions(WITHIN_S)
    for first, commits in ((0, True), (100, False), (200, True)):
        producer.begin_transaction()
        for number in range(first, first + 50):
            producer.produce(topic, b"%d" % number)
        producer.flush(WITHIN_S)
        producer.commit_transaction() if commits else producer.abort_transaction()
    read = rows_of(
        load(spark, kafka, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    )
    assert values_of(read) == [*range(50), *range(200, 250)]
    everything = rows_of(load(spark, kafka, subscribe=topic))
    assert values_of(everything) == [*range(50), *range(100, 150), *range(200, 250)]


def test_deleted_records_are_reported_with_their_range(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    produce(kafka, topic, numbered(0, 100), per_batch=10)
    futures = kafka.admin.delete_records([TopicPartition(topic, 0, 40)])
    for future in futures.values():
        future.result()
    from_start = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 0}}}}'}
    with pytest.raises(PySparkException, match=rf"{topic}-0: offsets 0 to 39 \(40 of them\)"):
        load(spark, kafka, **from_start).count()
    lenient = load(spark, kafka, failOnDataLoss="false", **from_start)
    assert values_of(rows_of(lenient)) == list(range(40, 100))


def test_a_stream_goes_on_commits_its_progress_and_notices_a_new_topic_of_the_old_name(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    source, target = kafka.topic(partitions=2), kafka.topic()
    group = f"{source}-lag"
    options = {"commitGroup": group, "maxOffsetsPerTrigger": "40"}
    for first in (0, 100):
        produce(kafka, source, numbered(first, 100), partition=None)
        copy_stream(spark, kafka, source, target, tmp_path / "checkpoint", **options)
    assert values_of(read_by_librdkafka(kafka, target)) == list(range(200))
    asked = [ConsumerGroupTopicPartitions(group)]
    found = kafka.admin.list_consumer_group_offsets(asked)[group].result().topic_partitions
    assert found is not None
    assert sum(each.offset for each in found) == 200
    kafka.delete(source)
    kafka.topic(partitions=2, name=source)
    produce(kafka, source, numbered(0, 300), partition=None)
    with pytest.raises(StreamingQueryException, match=f"'{source}' was deleted and created again"):
        copy_stream(spark, kafka, source, target, tmp_path / "checkpoint", **options)


def test_rows_become_records(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(partitions=3)
    frame = spark.range(500, numPartitions=2).selectExpr(
        "cast(id % 20 as string) as key",
        "cast(cast(id as string) as binary) as value",
        "array(named_struct('key', 'n', 'value', cast('x' as binary))) as headers",
    )
    writer = frame.write.format("moldau").option("kafka.bootstrap.servers", kafka.bootstrap)
    writer.option("topic", topic).option("kafka.compression.type", "zstd").mode("append").save()
    rows = read_by_librdkafka(kafka, topic, 3)
    assert values_of(rows) == list(range(500))
    assert all(row["headers"] == [{"key": "n", "value": b"x"}] for row in rows)
    with pytest.raises(PySparkException, match="topic 'nowhere-at-all' cannot be written"):
        writer.option("topic", "nowhere-at-all").save()
