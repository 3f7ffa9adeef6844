"""A leader that was frozen for longer than its lease, with requests waiting in its sockets."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from moldau.testing import Cluster, Ensemble
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, fetch_values, make_batch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TOPIC = "t"
SETTINGS = {"offsets.topic.num.partitions": 1}


def connect(cluster: Cluster, broker: int) -> Client:
    host, _, port = cluster.address(broker).rpartition(":")
    return Client((host, int(port)))


def outlast(cluster: Cluster, frozen: int, topic: str) -> None:
    """Return when another leads what the frozen broker led."""
    cluster.wait_until(lambda: cluster.leader_of(topic) != frozen, f"another leads {topic}")


@contextmanager
def flood(client: Client) -> Iterator[threading.Event]:
    """Writes with acks=1, one after the other without waiting, until the event is set."""
    is_over = threading.Event()

    def send() -> None:
        with suppress(ConnectionError):
            while not is_over.is_set():
                client.send_produce(TOPIC, make_batch(b"." * 20_000), acks=1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield is_over
    finally:
        is_over.set()
        thread.join()


def error_of(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def test_a_leader_frozen_in_the_middle_of_its_work_acknowledges_nothing_more(
    ensemble: Ensemble,
) -> None:
    with Cluster(3, ensemble, SETTINGS) as cluster:
        cluster.create_topic(TOPIC)
        leader = cluster.leader_of(TOPIC)
        with connect(cluster, leader) as writer, flood(writer) as is_over:
            for _ in range(200):
                assert error_of(writer.receive()) == 0
            cluster.freeze(leader)
            # What it has said by now it may say.
            while select.select([writer.socket], [], [], 0)[0]:
                writer.receive()
            outlast(cluster, leader, TOPIC)
            is_over.set()
            cluster.thaw(leader)
            # Its own timers come later than what lies in a socket that it is reading from. It hangs
            # up if it was answering.
            with suppress(ConnectionError):
                assert error_of(writer.receive()) == Error.NOT_LEADER_OR_FOLLOWER


def follower_fetch(broker: int, epoch: int) -> dict[str, Any]:
    """A question of a follower that has everything."""
    wanted = {"partition": 0, "fetch_offset": 1, "current_leader_epoch": epoch}
    values = fetch_values({TOPIC: [wanted]})
    return values | {"replica_id": broker}


def test_a_thawed_leader_serves_nothing_that_was_waiting_for_it(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble, SETTINGS) as cluster:
        cluster.create_topic(TOPIC)
        leader = cluster.leader_of(TOPIC)
        follower = next(broker for broker in cluster.brokers if broker != leader)
        with connect(cluster, leader) as writer, connect(cluster, leader) as reader:
            assert writer.produce(TOPIC, make_batch(b"before")).error_code == 0
            assert reader.fetch(TOPIC, 0).error_code == 0
            cluster.freeze(leader)
            for acks in (1, -1):
                writer.send_produce(TOPIC, make_batch(b"late"), acks=acks)
            reader.send_fetch({TOPIC: [{"partition": 0, "fetch_offset": 0}]})
            reader.send(Api.FETCH, 12, **follower_fetch(follower, -1))
            at_end = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
            reader.send(Api.LIST_OFFSETS, topics=[{"name": TOPIC, "partitions": [at_end]}])
            all_records = [{"partition_index": 0, "offset": -1}]
            topics = [{"name": TOPIC, "partitions": all_records}]
            reader.send(Api.DELETE_RECORDS, topics=topics, timeout=1000)
            of_epoch = {"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}
            reader.send(
                Api.OFFSET_FOR_LEADER_EPOCH,
                topics=[{"topic": TOPIC, "partitions": [of_epoch]}],
                replica_id=-1,
            )
            outlast(cluster, leader, TOPIC)
            cluster.thaw(leader)
            codes = [
                writer.receive().responses[0].partition_responses[0].error_code,
                writer.receive().responses[0].partition_responses[0].error_code,
                reader.receive().responses[0].partitions[0].error_code,
                reader.receive().responses[0].partitions[0].error_code,
                reader.receive().topics[0].partitions[0].error_code,
                reader.receive().topics[0].partitions[0].error_code,
                reader.receive().topics[0].partitions[0].error_code,
            ]
            assert codes == [Error.NOT_LEADER_OR_FOLLOWER] * 7
        cluster.wait_until_in_sync(TOPIC)
        with connect(cluster, cluster.leader_of(TOPIC)) as client:
            assert client.values(TOPIC) == [b"before"]


def test_a_thawed_coordinator_knows_no_group(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble, SETTINGS) as cluster:
        with connect(cluster, 0) as client:
            cluster.wait_until(
                lambda: (
                    client.ask(Api.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
                    .coordinators[0]
                    .error_code
                    == 0
                ),
                "a coordinator",
            )
        coordinator = cluster.leader_of("__consumer_offsets")
        wanted = [{"group_id": "g", "topics": None}]
        with connect(cluster, coordinator) as client:

            def offsets() -> int:
                answer = client.ask(Api.OFFSET_FETCH, 8, groups=wanted, require_stable=False)
                return int(answer.groups[0].error_code)

            cluster.wait_until(lambda: offsets() == 0, "the group is loaded")
            cluster.freeze(coordinator)
            client.send(Api.OFFSET_FETCH, 8, groups=wanted, require_stable=False)
            client.send(
                Api.HEARTBEAT, group_id="g", generation_id=1, member_id="m", group_instance_id=None
            )
            outlast(cluster, coordinator, "__consumer_offsets")
            cluster.thaw(coordinator)
            assert client.receive().groups[0].error_code == Error.NOT_COORDINATOR
            assert client.receive().error_code == Error.NOT_COORDINATOR


def test_a_write_taken_before_the_freeze_is_not_acknowledged_by_a_leader_that_lost_its_place(
    ensemble: Ensemble,
) -> None:
    with Cluster(3, ensemble, {**SETTINGS, "replica.lag.time.max.ms": 60_000}) as cluster:
        cluster.create_topic(TOPIC)
        leader = cluster.leader_of(TOPIC)
        others = [broker for broker in cluster.brokers if broker != leader]
        with connect(cluster, leader) as writer, connect(cluster, leader) as other:
            assert writer.produce(TOPIC, make_batch(b"before")).error_code == 0
            for broker in others:
                cluster.freeze(broker)
            # The second has its answer at once, which waits for the first one's.
            writer.send_produce(TOPIC, make_batch(b"all"), acks=-1)
            writer.send_produce(TOPIC, make_batch(b"one"), acks=1)
            # Answered after those, which came first.
            assert other.produce(TOPIC, make_batch(b"other"), acks=1).base_offset == 3
            cluster.freeze(leader)
            for broker in others:
                cluster.thaw(broker)
            outlast(cluster, leader, TOPIC)
            cluster.thaw(leader)
            # What it took may be gone by now: it says nothing at all.
            with pytest.raises(ConnectionError):
                writer.receive()
