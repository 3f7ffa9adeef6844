"""Share groups with others' clients: Java's, confluent-kafka's, and Kafka's own tool."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from bench.kafka.broker import java_words
from bench.kafka.jars import KAFKA_VERSION, Artifact, fetch, java
from moldau.bench.errors import Unavailable
from moldau.client.queue.beginning import begin_at
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import Client

PROGRAM = Path(__file__).parent / "Share.java"
WITHIN_S = 90.0
_JVM = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def fill(broker: Broker, topic: str, *values: str) -> None:
    broker.create_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(60) == 0


def lag_of(broker: Broker, group: str) -> int:
    with Client(broker) as client:
        groups = [{"group_id": group, "topics": None}]
        answer = client.ask(Api.DESCRIBE_SHARE_GROUP_OFFSETS, groups=groups)
    return sum(each.lag for topic in answer.groups[0].topics for each in topic.partitions)


def test_confluent_kafkas_share_consumer_works_off_a_topic(moldau_broker: Broker) -> None:
    values = [f"job {number}" for number in range(20)]
    fill(moldau_broker, "jobs", *values)
    begin_at(moldau_broker.bootstrap, "workers", "earliest")
    consumer = ShareConsumer(
        {
            "bootstrap.servers": moldau_broker.bootstrap,
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe(["jobs"])
    seen: dict[str, int] = {}
    done: set[str] = set()
    deadline = time.monotonic() + WITHIN_S
    try:
        while len(done) < len(values) and time.monotonic() < deadline:
            for message in consumer.poll(1.0):
                assert message.error() is None, message.error()
                value = (message.value() or b"").decode()
                seen[value] = message.delivery_count() or 0
                is_new = value.endswith("3") and seen[value] == 1
                kind = AcknowledgeType.RELEASE if is_new else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, kind)
                if not is_new:
                    done.add(value)
            assert not any(consumer.commit_sync(30).values())
    finally:
        consumer.close()
    assert done == set(values)
    assert seen["job 3"] == 2
    assert lag_of(moldau_broker, "workers") == 0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_javas_share_consumer_accepts_releases_rejects_and_renews(moldau_broker: Broker) -> None:
    try:
        jars = fetch(
            f"clients-{KAFKA_VERSION}",
            [Artifact("org.apache.kafka", "kafka-clients", KAFKA_VERSION)],
        )
        words = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    except Unavailable as reason:
        pytest.skip(f"cannot run Java's consumer: {reason}")
    values = [*(f"job {number}" for number in range(6)), "bad", "again", "long"]
    fill(moldau_broker, "jobs", *values)
    begin_at(moldau_broker.bootstrap, "workers", "earliest")
    words += [str(PROGRAM), "jobs", str(len(values))]
    words += [f"bootstrap.servers={moldau_broker.bootstrap}", "group.id=workers"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("ready", "closed")
    said = [tuple(line.split("\t")) for line in lines[1:-1]]
    assert sorted(said) == sorted(
        [
            *((f"job {number}", "1", "accept") for number in range(6)),
            ("bad", "1", "reject"),
            ("again", "1", "release"),
            ("again", "2", "accept"),
            ("long", "1", "renew"),
            ("long", "1", "accept"),
        ]
    )
    assert lag_of(moldau_broker, "workers") == 0


def tool(broker: Broker, *words: str) -> str:
    """What Kafka's tool for share groups prints."""
    main = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    given = ("--bootstrap-server", broker.bootstrap, *words)
    try:
        command = java_words(main, *given, jvm=_JVM)
    except Unavailable as reason:
        pytest.skip(f"cannot run Kafka's tools: {reason}")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_command_of_kafkas_tool_works(moldau_broker: Broker) -> None:
    fill(moldau_broker, "jobs", "a", "b", "c")
    begin_at(moldau_broker.bootstrap, "workers", "earliest")
    settings = {"bootstrap.servers": moldau_broker.bootstrap, "group.id": "workers"}
    consumer = ShareConsumer(settings)
    consumer.subscribe(["jobs"])
    count = 0
    deadline = time.monotonic() + WITHIN_S
    while count < 3 and time.monotonic() < deadline:
        count += len([each for each in consumer.poll(1.0) if each.error() is None])
    consumer.commit_sync(30)
    assert "workers" in tool(moldau_broker, "--list")
    members = tool(moldau_broker, "--describe", "--group", "workers", "--members")
    assert "jobs" in members
    state = tool(moldau_broker, "--describe", "--group", "workers", "--state")
    assert "Stable" in state
    consumer.close()
    offsets = tool(moldau_broker, "--describe", "--group", "workers", "--offsets")
    rows = [line.split() for line in offsets.splitlines() if line.startswith("workers")]
    assert len(rows) == 2
    assert all(row[1] == "jobs" for row in rows)
    reset = ("--reset-offsets", "--group", "workers", "--topic", "jobs", "--to-earliest")
    tool(moldau_broker, *reset, "--execute")
    assert lag_of(moldau_broker, "workers") == 3
    tool(moldau_broker, "--delete-offsets", "--group", "workers", "--topic", "jobs")
    tool(moldau_broker, "--delete", "--group", "workers")
    assert "workers" not in tool(moldau_broker, "--list")
