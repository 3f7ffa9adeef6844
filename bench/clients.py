"""`python -m bench.clients`: what single settings of Kafka's Python clients are worth.

Each line of docs/clients.md is measured here: messages of 100 B, one partition, one broker, the
client's defaults beside one change. For a quiet machine; about two minutes.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.testing import Cluster

VALUE = b"x" * 100
READ_FROM = "filled"
_FILL = 1_000_000
_REPEATS = 3

Rate = Callable[[str, dict[str, Any]], float]


def confluent_produce(bootstrap: str, settings: dict[str, Any]) -> float:
    return _confluent_produce(bootstrap, settings, "confluent", 500_000)


def _confluent_produce(bootstrap: str, settings: dict[str, Any], topic: str, count: int) -> float:
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    producer.list_topics(topic)
    started = time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, VALUE)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return count / (time.monotonic() - started)


def confluent_consume(bootstrap: str, settings: dict[str, Any]) -> float:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", **settings})
    consumer.assign([TopicPartition(READ_FROM, 0, 0)])
    while not consumer.consume(1, 10):
        pass
    started, seen = time.monotonic(), 0
    while seen < _FILL // 2:
        seen += len(consumer.consume(10_000, 1))
    rate = seen / (time.monotonic() - started)
    consumer.close()
    return rate


def kafka_python_produce(bootstrap: str, settings: dict[str, Any]) -> float:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, **settings)
    producer.partitions_for("kafka-python")
    count = 100_000
    started = time.monotonic()
    for _ in range(count):
        producer.send("kafka-python", VALUE)
    producer.flush()
    rate = count / (time.monotonic() - started)
    producer.close()
    return rate


def kafka_python_consume(bootstrap: str, settings: dict[str, Any]) -> float:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, **settings)
    partition = kafka.TopicPartition(READ_FROM, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    while not consumer.poll(1000):
        pass
    started, seen = time.monotonic(), 0
    while seen < 300_000:
        seen += sum(map(len, consumer.poll(1000, max_records=10_000).values()))
    rate = seen / (time.monotonic() - started)
    consumer.close()
    return rate


def aiokafka_produce(bootstrap: str, settings: dict[str, Any]) -> float:
    async def produce() -> float:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
        await producer.start()
        await producer.partitions_for("aiokafka")
        count = 60_000
        started = time.monotonic()
        sent = [await producer.send("aiokafka", VALUE) for _ in range(count)]
        await asyncio.gather(*sent)
        rate = count / (time.monotonic() - started)
        await producer.stop()
        return rate

    return asyncio.run(produce())


def aiokafka_consume(bootstrap: str, settings: dict[str, Any]) -> float:
    async def consume() -> float:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, **settings)
        await consumer.start()
        partition = aiokafka.TopicPartition(READ_FROM, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while not await consumer.getmany(timeout_ms=1000):
            pass
        started, seen = time.monotonic(), 0
        while seen < 300_000:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        rate = seen / (time.monotonic() - started)
        await consumer.stop()
        return rate

    return asyncio.run(consume())


MEASURED: list[tuple[str, Rate, list[dict[str, Any]]]] = [
    (
        "confluent-kafka, produce",
        confluent_produce,
        [
            {},
            {"queue.buffering.max.messages": 1_000_000},
            {"linger.ms": 50, "batch.num.messages": 100_000},
        ],
    ),
    (
        "confluent-kafka, consume",
        confluent_consume,
        [
            {},
            {"fetch.queue.backoff.ms": 20},
            {"fetch.queue.backoff.ms": 0},
            {"queued.min.messages": 1_000_000},
        ],
    ),
    ("kafka-python, produce", kafka_python_produce, [{}, {"batch_size": 262_144, "linger_ms": 20}]),
    (
        "kafka-python, consume",
        kafka_python_consume,
        [{}, {"max_partition_fetch_bytes": 4 << 20}, {"check_crcs": False}],
    ),
    ("aiokafka, produce", aiokafka_produce, [{}, {"max_batch_size": 262_144, "linger_ms": 20}]),
    ("aiokafka, consume", aiokafka_consume, [{}, {"max_partition_fetch_bytes": 4 << 20}]),
]


def lines(bootstrap: str) -> Iterator[str]:
    """A row of a table for each client, direction and setting."""
    for title, rate, choices in MEASURED:
        for settings in choices:
            rates = [rate(bootstrap, settings) / 1e6 for _ in range(_REPEATS)]
            named = ", ".join(f"`{key}={value}`" for key, value in settings.items()) or "defaults"
            samples = ", ".join(f"{each:.2f}" for each in rates)
            yield f"| {title} | {named} | {statistics.median(rates):.2f} | {samples} |"


def main() -> int:
    with Cluster(1) as cluster:
        for topic in (READ_FROM, "confluent", "kafka-python", "aiokafka"):
            cluster.create_topic(topic, 1, 1)
        _confluent_produce(cluster.bootstrap, {}, READ_FROM, _FILL)
        print("| client | setting | M messages/s | samples |\n| --- | --- | --- | --- |")
        for line in lines(cluster.bootstrap):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
