"""Batch reads on a real Spark, against what librdkafka reads of the same topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.spark.topics import (
    Sent,
    delete_before,
    fresh_topic,
    numbered,
    produce,
    read_by_librdkafka,
    varied,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def load(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    reader = spark.read.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(**options).load()


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def values_of(frame: DataFrame) -> list[int]:
    return sorted(int(row["value"]) for row in frame.select("value").toArrow().to_pylist())


def test_all_codecs_read_as_librdkafka_reads_them(
    spark: SparkSession, moldau_session_broker: Broker
) -> None:
    topics = []
    expected = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = fresh_topic(moldau_session_broker, partitions=2)
        produce(moldau_session_broker, topic, varied(300), codec=codec, partition=None)
        expected += read_by_librdkafka(moldau_session_broker, topic, 2)
        topics.append(topic)
    stamped = fresh_topic(moldau_session_broker, message_timestamp_type="LogAppendTime")
    produce(moldau_session_broker, stamped, varied(50))
    expected += read_by_librdkafka(moldau_session_broker, stamped)
    names = ",".join([*topics, stamped])
    frame = load(spark, moldau_session_broker, subscribe=names, includeHeaders="true")
    assert len(expected) == 1550
    assert rows_of(frame) == sorted(
        expected, key=lambda row: (row["topic"], row["partition"], row["offset"])
    )


def test_the_schema_is_that_of_sparks_own_source(
    spark: SparkSession, moldau_session_broker: Broker
) -> None:
    topic = fresh_topic(moldau_session_broker)
    frame = load(spark, moldau_session_broker, subscribe=topic, includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert frame.count() == 0


def test_chosen_columns_come_in_the_chosen_order(
    spark: SparkSession, moldau_session_broker: Broker
) -> None:
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 3))
    frame = load(spark, moldau_session_broker, subscribe=topic, columns="value, offset")
    assert frame.toArrow().to_pylist() == [
        {"value": b"%d" % number, "offset": number} for number in range(3)
    ]


def test_a_large_partition_is_split_over_tasks(
    spark: SparkSession, moldau_session_broker: Broker
) -> None:
    topic = fresh_topic(moldau_session_broker, partitions=2)
    produce(moldau_session_broker, topic, numbered(0, 1000), per_batch=300)
    frame = load(spark, moldau_session_broker, subscribe=topic, minPartitions="7")
    assert frame.rdd.getNumPartitions() == 7
    assert values_of(frame) == list(range(1000))


def test_bounds_are_kept(spark: SparkSession, moldau_session_broker: Broker) -> None:
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 100), first_ms=5_000, per_batch=30)
    by_offset = load(
        spark,
        moldau_session_broker,
        assign=f'{{"{topic}": [0]}}',
        startingOffsets=f'{{"{topic}": {{"0": 25}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 70}}}}',
    )
    assert values_of(by_offset) == list(range(25, 70))
    by_time = load(
        spark,
        moldau_session_broker,
        subscribePattern=f"{topic}",
        startingTimestamp="5010",
        endingTimestamp="5020",
    )
    assert values_of(by_time) == list(range(10, 20))


def test_deleted_records_fail_the_query_or_are_left_out(
    spark: SparkSession, moldau_session_broker: Broker
) -> None:
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 100), per_batch=10)
    delete_before(moldau_session_broker, topic, 40)
    assert values_of(load(spark, moldau_session_broker, subscribe=topic)) == list(range(40, 100))
    from_start = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 0}}}}'}
    with pytest.raises(PySparkException, match=rf"{topic}-0: offsets 0 to 39 \(40 of them\)"):
        load(spark, moldau_session_broker, **from_start).count()
    lenient = load(spark, moldau_session_broker, failOnDataLoss="false", **from_start)
    assert values_of(lenient) == list(range(40, 100))


@pytest.mark.moldau({"log.cleaner.backoff.ms": 20})
def test_what_compaction_left_is_read_and_its_gaps_are_no_loss(
    spark: SparkSession, moldau_broker: Broker
) -> None:
    topic = fresh_topic(
        moldau_broker,
        cleanup_policy="compact",
        segment_bytes=5000,
        min_cleanable_dirty_ratio="0.01",
    )
    records: list[Sent] = [(b"key-%d" % (n % 10), b"%d" % n, []) for n in range(1000)]
    produce(moldau_broker, topic, records, per_batch=20)
    until(lambda: len(read_by_librdkafka(moldau_broker, topic)) <= 500, "a compacted topic")
    # What is cleaned while it is read may still be there for one reader and gone for the other.
    rows = rows_of(load(spark, moldau_broker, subscribe=topic, minPartitions="5"))
    kept = {row["key"]: row["value"] for row in rows}
    assert kept == {b"key-%d" % (n % 10): b"%d" % n for n in range(990, 1000)}
    assert {row["offset"] for row in rows} < set(range(1000))


def test_a_restart_of_the_broker_in_the_middle_of_a_task_is_survived(
    spark: SparkSession, moldau_broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_topic(moldau_broker)
    count, filling = 8_000, b"." * 2000
    produce(moldau_broker, topic, [(b"%d" % n, filling, []) for n in range(count)], per_batch=20)
    options = {"subscribe": topic, "kafka.max.partition.fetch.bytes": "50000"}
    frame = load(spark, moldau_broker, **options)
    begun, restarted = tmp_path / "begun", tmp_path / "restarted"
    given_up = time.monotonic() + 200

    def held_up(rows: Iterable[Row]) -> Iterator[tuple[int, int]]:
        """Takes the first rows, and no more of those 16 MB before the broker is back."""
        for row in rows:
            begun.touch()
            while not restarted.exists() and time.monotonic() < given_up:
                time.sleep(0.01)
            yield int(row["key"]), row["offset"]

    def restart() -> None:
        while not begun.exists() and time.monotonic() < given_up:
            time.sleep(0.01)
        moldau_broker.stop()
        moldau_broker.start()
        restarted.touch()

    restarter = threading.Thread(target=restart)
    restarter.start()
    rows = frame.rdd.mapPartitions(held_up).collect()
    restarter.join()
    assert restarted.exists()
    assert rows == [(n, n) for n in range(count)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nowhere"}, "topic 'nowhere' does not exist"),
        ({"subscrib": "orders"}, "exactly one of subscribe, subscribePattern, assign must be"),
        (
            {"subscribe": "orders", "kafka.bootstrap.servers": "127.0.0.1:1"},
            "no broker answered within 0.5 s; tried 127.0.0.1:1 (Connection refused)",
        ),
    ],
    ids=["unknown topic", "wrong option", "unreachable broker"],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, moldau_session_broker: Broker, options: dict[str, str], message: str
) -> None:
    quick = {"kafka.default.api.timeout.ms": "500"}
    with pytest.raises(PySparkException) as caught:
        load(spark, moldau_session_broker, **(quick | options)).count()
    assert message in str(caught.value)
