"""Fetch over the wire: every version, the limits, long polls, and what is refused."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID, uuid4

import pytest

from moldau.broker.partitions.partition import Partition
from moldau.broker.server import Broker as Server
from moldau.log.log import Log
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import (
    Client,
    append_open,
    fetch_values,
    inside,
    make_batch,
    read_records,
    until_parked,
    versions,
)

# Milliseconds; more than any client here waits for an answer.
FOR_EVER = 3_600_000


def filled(client: Client, batches: int, size: int = 100, **configs: Any) -> str:
    """A topic with so many batches, each of one record of `size` bytes and a little more."""
    topic = client.create(**configs)
    for _ in range(batches):
        assert client.produce(topic, make_batch(bytes(size))).error_code == 0
    return topic


def offsets(answer: Any) -> list[int]:
    return [record.offset for record in read_records(answer.records)]


def partition_of(broker: Broker, topic: str, index: int = 0) -> Partition:
    return inside(broker, lambda server: server.partitions[topic, index])


@pytest.mark.parametrize("version", versions(Api.FETCH))
def test_every_version_reads(client: Client, version: int) -> None:
    topic = client.create()
    client.produce(topic, make_batch(b"one", b"two"))
    client.produce(topic, make_batch(b"three"))
    key = client.topic_id(topic) if version >= 13 else topic
    answer = client.fetch(key, 0, version=version)
    assert [record.value for record in read_records(answer.records)] == [b"one", b"two", b"three"]
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
    assert answer.aborted_transactions is None
    if version >= 5:
        assert answer.log_start_offset == 0
    if version >= 11:
        assert answer.preferred_read_replica == -1
    # An offset inside of a batch gives the whole batch.
    assert offsets(client.fetch(key, 1, version=version)) == [0, 1, 2]
    at_end = client.fetch(key, 3, version=version)
    assert (at_end.error_code, at_end.records or b"") == (0, b"")


@pytest.mark.parametrize("version", versions(Api.FETCH))
def test_every_version_says_what_is_unknown_or_out_of_range(client: Client, version: int) -> None:
    topic = filled(client, 1)
    by_id = version >= 13
    key: str | UUID = client.topic_id(topic) if by_id else topic
    missing: str | UUID = uuid4() if by_id else "nobody-made-this"
    unknown = Error.UNKNOWN_TOPIC_ID if by_id else Error.UNKNOWN_TOPIC_OR_PARTITION
    # It is not waited for anything: the client would not wait so long.
    assert client.fetch(missing, 0, version=version, max_wait=FOR_EVER).error_code == unknown
    beyond = client.fetch(key, 0, version=version, partition=1, max_wait=FOR_EVER)
    assert beyond.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    for offset in (2, -1, 2**62):
        answer = client.fetch(key, offset, version=version, max_wait=FOR_EVER)
        assert answer.error_code == Error.OFFSET_OUT_OF_RANGE
        assert (answer.high_watermark, answer.records or b"") == (-1, b"")


def test_what_was_deleted_is_out_of_range(client: Client) -> None:
    topic = filled(client, 3)
    wanted = {"partition_index": 0, "offset": 2}
    client.ask(Api.DELETE_RECORDS, topics=[{"name": topic, "partitions": [wanted]}], timeout=100)
    assert client.fetch(topic, 1).error_code == Error.OFFSET_OUT_OF_RANGE
    answer = client.fetch(topic, 2)
    assert (offsets(answer), answer.log_start_offset) == ([2], 2)


def test_a_topic_that_was_made_again_is_not_found_by_its_old_id(client: Client) -> None:
    topic = filled(client, 1)
    old = client.topic_id(topic)
    client.ask(Api.DELETE_TOPICS, topics=[{"name": topic, "topic_id": None}], timeout=5000)
    client.create(topic)
    assert client.fetch(old, 0, version=13).error_code == Error.UNKNOWN_TOPIC_ID
    assert client.fetch(client.topic_id(topic), 0, version=13).error_code == 0
    assert client.fetch(topic, 0, version=12).error_code == 0


# Limits


def test_the_limit_of_a_partition_is_kept_in_whole_batches(client: Client) -> None:
    topic = filled(client, 5)
    size = len(client.fetch(topic, 0).records) // 5
    for batches in range(1, 6):
        answer = client.fetch(topic, 0, partition_max_bytes=batches * size + size // 2)
        assert offsets(answer) == list(range(batches))
    assert offsets(client.fetch(topic, 3, partition_max_bytes=size)) == [3]


@pytest.mark.parametrize("limit", [1, 0, -1, -(2**31)])
def test_a_first_batch_is_given_whole_however_small_the_limits(client: Client, limit: int) -> None:
    topic = filled(client, 3, size=5000)
    assert offsets(client.fetch(topic, 1, partition_max_bytes=limit)) == [1]
    assert offsets(client.fetch(topic, 1, max_bytes=limit)) == [1]
    assert offsets(client.fetch(topic, 1, max_bytes=limit, partition_max_bytes=limit)) == [1]


def test_the_total_limit_covers_all_partitions_and_only_the_first_may_exceed_it(
    client: Client,
) -> None:
    topics = [filled(client, 2, size=1000) for _ in range(3)]
    size = len(client.fetch(topics[0], 0).records) // 2

    def fetched(max_bytes: int) -> list[list[int]]:
        client.send_fetch({topic: [0] for topic in topics}, max_bytes=max_bytes)
        return [offsets(each.partitions[0]) for each in client.receive().responses]

    assert fetched(1) == [[0], [], []]
    assert fetched(2 * size) == [[0, 1], [], []]
    assert fetched(3 * size) == [[0, 1], [0], []]
    assert fetched(100 * size) == [[0, 1], [0, 1], [0, 1]]


def test_an_empty_partition_does_not_use_up_the_right_to_one_batch(client: Client) -> None:
    empty, topic = client.create(), filled(client, 2, size=1000)
    client.send_fetch({empty: [0], topic: [0]}, max_bytes=1)
    answer = client.receive()
    assert [offsets(each.partitions[0]) for each in answer.responses] == [[], [0]]


@pytest.mark.moldau({"fetch.max.bytes": 4096})
def test_the_brokers_own_limit_holds_for_everybody(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        topic = filled(client, 10, size=1000)
        assert len(client.fetch(topic, 0).records) <= 4096
        big = client.create()
        client.produce(big, make_batch(bytes(50_000)))
        assert offsets(client.fetch(big, 0)) == [0]


def test_large_answers_arrive_whole_over_a_slow_connection(client: Client) -> None:
    topic = client.create()
    values = [bytes([place]) * 500_000 for place in range(12)]
    for value in values:
        client.produce(topic, make_batch(value))
    client.send_fetch({topic: [{"partition": 0, "partition_max_bytes": 1 << 30}]})
    records = read_records(client.receive().responses[0].partitions[0].records)
    assert [record.value for record in records] == values


def test_reads_go_on_over_the_end_of_a_segment(client: Client) -> None:
    topic = filled(client, 20, size=400, segment_bytes="1024")
    assert client.values(topic) == [bytes(400)] * 20


# Long polls


def test_a_fetch_waits_for_records_and_is_answered_by_a_produce(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    partition = partition_of(moldau_broker, "t")
    with Client(moldau_broker) as client, Client(moldau_broker) as producer:
        for version in versions(Api.FETCH):
            end = producer.end_of("t")
            key = client.topic_id("t") if version >= 13 else "t"
            wanted = {key: [{"partition": 0, "fetch_offset": end}]}
            client.send_fetch(wanted, version=version, max_wait=60_000)
            until_parked(partition)
            producer.produce("t", make_batch(b"x"))
            assert offsets(client.receive().responses[0].partitions[0]) == [end]
            assert not partition.waiters


def test_a_fetch_waits_for_min_bytes(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    partition = partition_of(moldau_broker, "t")
    with Client(moldau_broker) as client, Client(moldau_broker) as producer:
        size = len(make_batch(bytes(100)))
        client.send_fetch({"t": [0]}, max_wait=60_000, min_bytes=2 * size + 1)
        until_parked(partition)
        for _ in range(2):
            producer.produce("t", make_batch(bytes(100)))
            assert partition.waiters
        client.expect_nothing()
        producer.produce("t", make_batch(bytes(100)))
        assert offsets(client.receive().responses[0].partitions[0]) == [0, 1, 2]


def test_min_bytes_counts_over_all_partitions(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t", partitions=2)
    with Client(moldau_broker) as client, Client(moldau_broker) as producer:
        size = len(make_batch(bytes(100)))
        client.send_fetch({"t": [0, 1]}, max_wait=60_000, min_bytes=2 * size)
        for index in (0, 1):
            partition = partition_of(moldau_broker, "t", index)
            until_parked(partition)
        producer.produce("t", make_batch(bytes(100)), partition=1)
        client.expect_nothing()
        producer.produce("t", make_batch(bytes(100)), partition=0)
        answer = client.receive().responses[0].partitions
        assert [offsets(each) for each in answer] == [[0], [0]]


def test_a_fetch_is_answered_with_what_there_is_when_its_time_is_up(client: Client) -> None:
    topic = filled(client, 1)
    for max_wait in (1, 50):
        started = time.monotonic()
        answer = client.fetch(topic, 0, max_wait=max_wait, min_bytes=1 << 20)
        # The loop's clock counts whole milliseconds and may be one behind.
        assert time.monotonic() - started >= (max_wait - 2) / 1000
        assert offsets(answer) == [0]


@pytest.mark.parametrize("max_wait", [0, -1, -(2**31)])
def test_without_time_a_fetch_is_answered_at_once(client: Client, max_wait: int) -> None:
    topic = client.create()
    answer = client.fetch(topic, 0, max_wait=max_wait, min_bytes=1000)
    assert (answer.error_code, answer.records or b"") == (0, b"")


def test_a_min_bytes_above_the_total_limit_waits_for_the_limit_only(client: Client) -> None:
    topic = filled(client, 3)
    answer = client.fetch(topic, 0, max_wait=FOR_EVER, min_bytes=2**31 - 1, max_bytes=1)
    assert offsets(answer) == [0]


def test_a_fetch_of_nothing_is_answered_at_once(client: Client) -> None:
    client.send_fetch({}, max_wait=FOR_EVER)
    assert client.receive().responses == ()


def test_parked_fetches_are_dropped_with_their_connections(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t", partitions=3)
    partitions = [partition_of(moldau_broker, "t", index) for index in range(3)]
    clients = [Client(moldau_broker) for _ in range(20)]
    for client in clients:
        for _ in range(3):
            client.send_fetch({"t": [0, 1, 2]}, max_wait=2**31 - 1)
    for partition in partitions:
        until_parked(partition, 60)
    for client in clients:
        client.close()
    until(lambda: not any(each.waiters for each in partitions), "the fetches to be dropped")
    until(lambda: not inside(moldau_broker, lambda server: server.connections), "the end of all")


def test_a_deleted_topic_ends_the_fetches_that_wait_for_it(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    partition = partition_of(moldau_broker, "t")
    with Client(moldau_broker) as client, Client(moldau_broker) as other:
        topic_id = client.topic_id("t")
        client.send_fetch({"t": [0]}, max_wait=60_000)
        client.send_fetch({topic_id: [0]}, max_wait=60_000, version=16)
        until_parked(partition, 2)
        other.ask(Api.DELETE_TOPICS, topics=[{"name": "t", "topic_id": None}], timeout=5000)
        by_name = client.receive().responses[0].partitions[0]
        assert by_name.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert client.receive().responses[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_ID


def test_a_fetch_that_waits_does_not_hold_up_other_connections(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client, Client(moldau_broker) as other:
        client.send_fetch({"t": [0]}, max_wait=60_000, min_bytes=1 << 20)
        for place in range(10):
            assert other.produce("t", make_batch(b"x")).base_offset == place


@pytest.mark.parametrize("is_woken", [True, False])
def test_a_parked_fetch_that_fails_ends_its_own_connection_and_no_other(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch, is_woken: bool
) -> None:
    moldau_broker.create_topic("t")
    partition = partition_of(moldau_broker, "t")

    def fail(*place: object) -> None:
        raise RuntimeError("nobody has thought of this")

    with Client(moldau_broker) as client, Client(moldau_broker) as producer:
        client.send_fetch({"t": [0]}, max_wait=60_000 if is_woken else 300)
        until_parked(partition)
        monkeypatch.setattr(Log, "read", fail)
        if is_woken:
            assert producer.produce("t", make_batch(b"x")).error_code == 0
        assert client.is_closed()
        assert not partition.waiters
        monkeypatch.undo()
        assert producer.produce("t", make_batch(b"y")).error_code == 0


# Epochs and isolation


def test_an_old_leader_epoch_is_fenced_and_a_future_one_unknown(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        client.produce("t", make_batch(b"x"))

        def advance(server: Server) -> None:
            server.partitions["t", 0].leader_epoch = 5

        inside(moldau_broker, advance)
        topic_id = client.topic_id("t")
        for version in range(9, versions(Api.FETCH).stop):
            key = topic_id if version >= 13 else "t"
            for epoch, code in (
                (-1, 0),
                (-2, 0),
                (5, 0),
                (4, Error.FENCED_LEADER_EPOCH),
                (6, Error.UNKNOWN_LEADER_EPOCH),
            ):
                answer = client.fetch(key, 0, version=version, current_leader_epoch=epoch)
                assert answer.error_code == code, (version, epoch)
                if version >= 12:
                    is_told = version >= 16 and code == Error.FENCED_LEADER_EPOCH
                    assert answer.current_leader.leader_epoch == (5 if is_told else -1)


def test_a_broker_that_does_not_lead_says_who_does(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        client.send_fetch({"t": [0]}, max_wait=60_000)
        partition = partition_of(moldau_broker, "t")
        until_parked(partition)

        def resign(server: Server) -> None:
            partition.is_leader = False
            partition.leader, partition.leader_epoch = 5, 9
            partition.wake()

        topic_id = Client(moldau_broker).topic_id("t")
        inside(moldau_broker, resign)
        parked = client.receive().responses[0].partitions[0]
        assert parked.error_code == Error.NOT_LEADER_OR_FOLLOWER
        client.send_fetch({topic_id: [0]}, version=17)
        answer = client.receive()
        leader = answer.responses[0].partitions[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (5, 9)
        assert [each.port for each in answer.node_endpoints] == [moldau_broker.port]


@pytest.mark.parametrize("version", versions(Api.FETCH))
def test_only_replicas_are_fed_as_such(client: Client, version: int) -> None:
    topic = filled(client, 1)
    key = client.topic_id(topic) if version >= 13 else topic
    for replica in (0, 7):
        state = {"replica_id": replica, "replica_epoch": -1}
        asked = fetch_values({key: [0]}) | {"replica_id": replica, "replica_state": state}
        refused = client.ask(Api.FETCH, version, **asked).responses[0].partitions[0]
        assert refused.error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert (refused.high_watermark, refused.records or b"") == (-1, b"")
        if version >= 16:
            assert refused.current_leader.leader_id == 0


@pytest.mark.parametrize("version", versions(Api.FETCH))
def test_who_reads_committed_records_is_told_of_aborted_transactions(
    client: Client, version: int
) -> None:
    topic = filled(client, 2)
    key = client.topic_id(topic) if version >= 13 else topic
    answer = client.fetch(key, 0, version=version, isolation_level=1)
    assert offsets(answer) == [0, 1]
    assert answer.last_stable_offset == 2
    assert answer.aborted_transactions == ()


def test_records_of_an_open_transaction_are_only_for_who_reads_uncommitted(
    client: Client, moldau_session_broker: Broker
) -> None:
    topic = filled(client, 1)
    append_open(moldau_session_broker, topic, b"open")
    assert offsets(client.fetch(topic, 0)) == [0, 1]
    answer = client.fetch(topic, 0, isolation_level=1)
    assert offsets(answer) == [0]
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 1)
    assert (client.fetch(topic, 1, isolation_level=1).records or b"") == b""
