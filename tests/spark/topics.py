"""Topics with something in them, and what librdkafka reads there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.asking import Asker
from tests.spark.batches import EPOCH

WITHIN_S = 60.0
_names = itertools.count()

# key, value, headers
Sent = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]


class Reachable(Protocol):
    """Ours, or any other that speaks the protocol."""

    @property
    def bootstrap(self) -> str: ...


def fresh_topic(broker: Broker, partitions: int = 1, **configs: str | int) -> str:
    """A topic whose records may be of any time: the next round of retention leaves them."""
    name = f"spark-{next(_names)}"
    broker.create_topic(name, partitions, **{"retention_ms": -1, **configs})
    return name


def varied(count: int) -> list[Sent]:
    """Records of all kinds: nulls, empty ones, some with headers."""
    return [
        (
            None if number % 3 == 0 else b"key-%d" % number,
            None if number % 7 == 0 else b"v" * (number % 50),
            [("origin", b"test"), ("empty", None), ("é", b"")] if number % 4 == 0 else [],
        )
        for number in range(count)
    ]


def produce(
    broker: Reachable,
    topic: str,
    records: Iterable[Sent],
    *,
    codec: str = "none",
    partition: int | None = 0,
    per_batch: int = 100,
    first_ms: int | None = None,
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": codec,
            "batch.num.messages": per_batch,
            "linger.ms": 5,
        }
    )
    for number, (key, value, headers) in enumerate(records):
        producer.produce(
            topic,
            value,
            key,
            -1 if partition is None else partition,
            timestamp=0 if first_ms is None else first_ms + number,
            headers=headers,
        )
    assert producer.flush(WITHIN_S) == 0


def numbered(first: int, count: int) -> list[Sent]:
    return [(None, b"%d" % number, []) for number in range(first, first + count)]


def read_by_librdkafka(broker: Reachable, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
    """All records of a topic in the form of the source's rows, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    rows: list[dict[str, Any]] = []
    open_partitions = partitions
    deadline = time.monotonic() + WITHIN_S
    try:
        consumer.list_topics(topic, timeout=WITHIN_S)
        consumer.assign(
            [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
        )
        while open_partitions:
            assert time.monotonic() < deadline
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_partitions -= 1
                    continue
                kind, milliseconds = message.timestamp()
                pairs: list[Any] = list(message.headers() or [])
                headers = [{"key": name, "value": value} for name, value in pairs]
                rows.append(
                    {
                        "key": message.key(),
                        "value": message.value(),
                        "topic": message.topic(),
                        "partition": message.partition(),
                        "offset": message.offset(),
                        "timestamp": EPOCH + timedelta(milliseconds=milliseconds),
                        "timestampType": kind - 1,
                        "headers": headers or None,
                    }
                )
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    partitions = [{"partition_index": 0, "offset": offset}]
    with Asker(broker) as asker:
        asker.ask(Api.DELETE_RECORDS, topics=[{"name": topic, "partitions": partitions}])


def delete_topic(broker: Broker, topic: str) -> None:
    with Asker(broker) as asker:
        asker.ask(Api.DELETE_TOPICS, topics=[{"name": topic}])


def add_partitions(broker: Broker, topic: str, count: int) -> None:
    with Asker(broker) as asker:
        asker.ask(Api.CREATE_PARTITIONS, topics=[{"name": topic, "count": count}])
