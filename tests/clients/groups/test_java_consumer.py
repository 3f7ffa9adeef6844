"""Java's consumer with `group.protocol=consumer` (KIP-848)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.kafka.jars import KAFKA_VERSION, Artifact, fetch, java
from moldau.bench.errors import Unavailable
from moldau.testing import Broker

PROGRAM = Path(__file__).parent / "Consume.java"
WITHIN_S = 120.0
PARTITIONS = 3


def read(broker: Broker, count: int) -> list[tuple[str, str]]:
    """What a Java consumer says that reads so many messages."""
    try:
        wanted = [Artifact("org.apache.kafka", "kafka-clients", KAFKA_VERSION)]
        jars = fetch(f"clients-{KAFKA_VERSION}", wanted)
        words = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    except Unavailable as reason:
        pytest.skip(f"cannot run Java's consumer: {reason}")
    words += [str(PROGRAM), "t", str(count), f"bootstrap.servers={broker.bootstrap}"]
    words += ["group.id=g"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[-1] == "closed", ran.stdout + ran.stderr
    found = [line.partition("\t") for line in lines[:-1]]
    return [(what, rest) for what, _, rest in found]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_javas_consumer_reads_commits_and_goes_on_where_it_stopped(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": moldau_broker.bootstrap})
    for part in ("first", "second"):
        wanted = sorted(f"{part} {number}" for number in range(30))
        for number, value in enumerate(wanted):
            producer.produce("t", value.encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        said = read(moldau_broker, len(wanted))
        assert sorted(rest for what, rest in said if what == "read") == wanted
        for change in ("assigned", "revoked"):
            assert sorted(rest for what, rest in said if what == change) == ["0", "1", "2"]
    consumer = Consumer({"bootstrap.servers": moldau_broker.bootstrap, "group.id": "g"})
    places = [TopicPartition("t", index) for index in range(PARTITIONS)]
    assert [each.offset for each in consumer.committed(places, 30)] == [20] * PARTITIONS
    consumer.close()
