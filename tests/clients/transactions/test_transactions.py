"""Transactions by real clients: consume, transform, produce, with offsets in the transaction."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from bench.kafka.jars import KAFKA_VERSION, Artifact, fetch, java
from moldau.bench.errors import Unavailable
from moldau.testing import Broker, Cluster, Ensemble

WITHIN_S = 60.0
_PROGRAM = Path(__file__).parent / "Transact.java"
Place = Broker | Cluster


@pytest.fixture(scope="module")
def cluster(ensemble: Ensemble) -> Iterator[Cluster]:
    with Cluster(3, ensemble) as cluster:
        yield cluster


@pytest.fixture(params=["broker", pytest.param("cluster", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> Place:
    """One broker, or three of them."""
    found: Place = request.getfixturevalue(request.param)
    return found


def committed_values(place: Place, topic: str, count: int) -> list[str]:
    """What a read-committed consumer sees, up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": place.bootstrap,
            "group.id": f"check-{topic}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    try:
        while True:
            message = consumer.poll(WITHIN_S)
            assert message is not None, f"{len(found)} of {count} messages came"
            if message.error():
                return found
            found.append((message.value() or b"").decode())
    finally:
        consumer.close()


def committed_offset(place: Place, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], WITHIN_S)
    consumer.close()
    return int(found.offset)


def test_confluent_kafka_commits_and_aborts(place: Place, fresh_name: str) -> None:
    topic, group = fresh_name, f"group-{fresh_name}"
    place.create_topic(topic)
    producer = Producer({"bootstrap.servers": place.bootstrap, "transactional.id": fresh_name})
    producer.init_transactions(WITHIN_S)
    reader = Consumer({"bootstrap.servers": place.bootstrap, "group.id": group})
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce(topic, f"{number} {commits}")
        producer.flush()
        positions = [TopicPartition(topic, 0, number + 1)]
        producer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), WITHIN_S)
        if commits:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)
    reader.close()
    assert committed_values(place, topic, 2) == ["0 True", "2 True"]
    assert committed_offset(place, group, topic) == 3


def test_confluent_kafka_is_fenced_by_a_second_producer(place: Place, fresh_name: str) -> None:
    topic = fresh_name
    place.create_topic(topic)
    settings = {"bootstrap.servers": place.bootstrap, "transactional.id": fresh_name}
    first, second = Producer(settings), Producer(settings)
    first.init_transactions(WITHIN_S)
    first.begin_transaction()
    first.produce(topic, b"never")
    first.flush()
    second.init_transactions(WITHIN_S)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(WITHIN_S)
    assert refused.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"mine")
    second.commit_transaction(WITHIN_S)
    assert committed_values(place, topic, 1) == ["mine"]


def test_aiokafka_commits_and_aborts(place: Place, fresh_name: str) -> None:
    topic, group = fresh_name, f"group-{fresh_name}"
    place.create_topic(topic)

    async def work() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=place.bootstrap, transactional_id=fresh_name)
        await producer.start()
        try:
            for number, commits in enumerate((True, False, True)):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, f"{number} {commits}".encode())
                offsets = {AioPartition(topic, 0): number + 1}
                await producer.send_offsets_to_transaction(offsets, group)
                if commits:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=place.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            return [(await consumer.getone()).value for _ in range(2)]
        finally:
            await consumer.stop()

    found = asyncio.run(asyncio.wait_for(work(), WITHIN_S))
    assert found == [b"0 True", b"2 True"]
    assert committed_values(place, topic, 2) == ["0 True", "2 True"]
    assert committed_offset(place, group, topic) == 3


def test_kafka_python_commits_and_aborts(place: Place, fresh_name: str) -> None:
    topic, group = fresh_name, f"group-{fresh_name}"
    place.create_topic(topic)
    producer = KafkaProducer(bootstrap_servers=place.bootstrap, transactional_id=fresh_name)
    try:
        producer.init_transactions()
        for number, commits in enumerate((True, False, True)):
            producer.begin_transaction()
            producer.send(topic, f"{number} {commits}".encode()).get(WITHIN_S)
            offsets = {KafkaPartition(topic, 0): OffsetAndMetadata(number + 1, "", -1)}
            producer.send_offsets_to_transaction(offsets, group)
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    finally:
        producer.close(WITHIN_S)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=place.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WITHIN_S * 1000),
    )
    try:
        found: list[Any] = [next(consumer).value for _ in range(2)]
    finally:
        consumer.close()
    assert found == [b"0 True", b"2 True"]
    assert committed_offset(place, group, topic) == 3


@pytest.mark.slow
def test_java_copies_a_topic_exactly_once(place: Place, fresh_name: str) -> None:
    """The newer dialect: Kafka's own producer and consumer, offsets in the transaction."""
    try:
        command = java()
        wanted = [Artifact("org.apache.kafka", "kafka-clients", KAFKA_VERSION)]
        jars = fetch(f"clients-{KAFKA_VERSION}", wanted)
    except Unavailable as reason:
        pytest.skip(f"cannot run Java's clients: {reason}")
    source, target = f"{fresh_name}-in", f"{fresh_name}-out"
    for topic in (source, target):
        place.create_topic(topic)
    values = [f"value {number}" for number in range(23)]
    producer = Producer({"bootstrap.servers": place.bootstrap})
    for value in values:
        producer.produce(source, value)
    assert producer.flush(WITHIN_S) == 0
    words = [command, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    words += [str(_PROGRAM), place.bootstrap, source, target, str(len(values))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == values
    assert committed_values(place, target, len(values)) == values
    assert committed_offset(place, f"copy-{target}", source) == len(values)
