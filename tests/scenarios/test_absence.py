"""Absence: what happened to topics while a broker was away, and logs that do not begin at zero."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions

from moldau.testing import Cluster, Ensemble
from tests.scenarios.clients import IMPATIENT, PATIENCE_S
from tests.scenarios.play import TOPIC, Play

pytestmark = pytest.mark.timeout(400)


def send(cluster: Cluster, topic: str, values: dict[bytes, bytes] | list[bytes]) -> None:
    """To partition 0, with acks=all; a mapping's keys are the messages'."""
    producer = Producer(
        {
            **IMPATIENT,
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            # Batches have to fit into small segments.
            "batch.num.messages": 10,
        }
    )
    items = values.items() if isinstance(values, dict) else [(None, each) for each in values]
    failed = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    for key, value in items:
        producer.produce(topic, value, key, partition=0, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed


def read(cluster: Cluster, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of all that is in partition 0."""
    consumer = Consumer(
        {
            **IMPATIENT,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "-",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found = []
    try:
        start, end = bounds(consumer, topic)
        consumer.assign([TopicPartition(topic, 0, start)])
        while start < end:
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    found.append((message.offset() or 0, message.key(), message.value()))
            (position,) = consumer.position([TopicPartition(topic, 0)])
            start = position.offset
    finally:
        consumer.close()
    return found


def bounds(consumer: Consumer, topic: str) -> tuple[int, int]:
    """Where partition 0 begins and ends; asked again if the broker that was asked has just died."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            start, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 3)
            return int(start), int(end)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_a_broker_that_was_away_learns_what_became_of_its_topics(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster:
        admin = AdminClient({**IMPATIENT, "bootstrap.servers": cluster.bootstrap})
        for topic in ("deleted", "again", "grown"):
            cluster.create_topic(topic, replication_factor=2 if topic == "grown" else 3)
            send(cluster, topic, [b"old"] * 10)
        cluster.wait_until_in_sync()
        cluster.stop(2)
        for future in admin.delete_topics(["deleted", "again"]).values():
            future.result(PATIENCE_S)
        cluster.wait_until(
            lambda: all(("again", 0) not in cluster.view(i).partitions for i in (0, 1)),
            "it is gone everywhere",
        )
        cluster.create_topic("again", partitions=2, replication_factor=2)
        send(cluster, "again", [b"new"])
        for future in admin.create_partitions([NewPartitions("grown", 4)]).values():
            future.result(PATIENCE_S)
        cluster.start(2)
        cluster.wait_until_in_sync()
        folder = cluster.data_dir(2)
        cluster.wait_until(
            lambda: not (folder / "deleted-0").exists() and not (folder / "again-0").exists(),
            "what was deleted is gone from its disk",
        )
        assert read(cluster, "again") == [(0, None, b"new")]
        assert len(read(cluster, "grown")) == 10


def test_a_wiped_follower_begins_where_its_leader_does(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("trimmed", segment_bytes=10_000)
        values = [b"%d" % number + b"." * 200 for number in range(300)]
        send(cluster, "trimmed", values)
        admin = AdminClient({**IMPATIENT, "bootstrap.servers": cluster.bootstrap})
        start = [TopicPartition("trimmed", 0, 137)]
        (deleted,) = admin.delete_records(start, request_timeout=PATIENCE_S).values()
        assert deleted.result(PATIENCE_S).low_watermark == 137
        leader = cluster.leader_of("trimmed")
        follower = next(broker for broker in cluster.brokers if broker != leader)
        cluster.kill(follower)
        cluster.wipe(follower)
        cluster.start(follower)
        cluster.wait_until_in_sync()
        # Now that it is the only one, it shows what it has.
        cluster.stop(*(broker for broker in cluster.brokers if broker != follower))
        assert cluster.leader_of("trimmed") == follower
        found = read(cluster, "trimmed")
        assert [offset for offset, _, _ in found] == list(range(137, 300))
        assert [value for _, _, value in found] == values[137:]


@pytest.mark.slow
def test_a_compacted_topic_keeps_the_newest_of_each_key_through_failovers(
    ensemble: Ensemble,
) -> None:
    settings = {"log.cleaner.backoff.ms": "50", "log.cleaner.enable": "true"}
    with Cluster(3, ensemble, settings) as cluster:
        cluster.create_topic(
            "keyed", cleanup_policy="compact", segment_bytes=10_000, min_cleanable_dirty_ratio=0.01
        )
        newest: dict[bytes, bytes] = {}
        for turn in range(6):
            batch = {b"%d" % key: b"%d of %d" % (turn, key) * 20 for key in range(turn, 60)}
            send(cluster, "keyed", batch)
            newest |= batch
            if turn % 2:
                leader = cluster.leader_of("keyed")
                cluster.kill(leader)
                send(cluster, "keyed", {b"last": b"%d" % turn})
                newest[b"last"] = b"%d" % turn
                cluster.start(leader)
                cluster.wait_until_in_sync("keyed")
        for _ in cluster.brokers:
            found = read(cluster, "keyed")
            assert {key: value for _, key, value in found} == newest
            assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
            cluster.kill(cluster.leader_of("keyed"))
            if not cluster.running:
                break
        assert len(found) < 6 * 60


@pytest.mark.slow
def test_a_flush_policy_holds_through_the_death_of_a_leader(ensemble: Ensemble) -> None:
    with (
        Cluster(3, ensemble) as cluster,
        Play(cluster, flush_messages=1, segment_bytes=60_000) as play,
    ):
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        cluster.kill(leader)
        play.go_on()
        cluster.start(leader)
        cluster.wait_until_in_sync(TOPIC)
