"""WriteTxnMarkers over the wire: what ends a transaction, when it is answered, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.partitions.partition import Partition
from moldau.broker.server import Broker as Server
from moldau.log.markers import TransactionEnd
from moldau.records.batch import batches, read_header
from moldau.records.record import read_end_marker
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, append_open, inside, until_parked, versions


def marker_values(*topics: str, commits: bool = True, **more: Any) -> dict[str, Any]:
    """The fields of a request that ends the transaction of `append_open`."""
    marker = {
        "producer_id": 9,
        "producer_epoch": 0,
        "transaction_result": commits,
        "topics": [{"name": name, "partition_indexes": [0]} for name in topics],
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    return {"markers": [marker | more]}


def codes(answer: Any) -> list[int]:
    return [
        partition.error_code
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", versions(Api.WRITE_TXN_MARKERS))
@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_ends_an_open_transaction(
    moldau_session_broker: Broker, client: Client, version: int, commits: bool
) -> None:
    topic = client.create()
    append_open(moldau_session_broker, topic, b"x")
    assert client.fetch(topic, 0, isolation_level=1).last_stable_offset == 0
    values = marker_values(topic, commits=commits, coordinator_epoch=7)
    assert codes(client.ask(Api.WRITE_TXN_MARKERS, version, **values)) == [0]
    answer = client.fetch(topic, 0, isolation_level=1)
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 2)
    (_, data), (position, header) = batches(answer.records)
    assert not data.is_control
    assert header.is_control
    assert header.is_transactional
    assert read_end_marker(answer.records, position) == (commits, 7)


def test_a_marker_may_be_repeated(moldau_session_broker: Broker, client: Client) -> None:
    topic = client.create()
    append_open(moldau_session_broker, topic, b"x")
    for _ in range(2):
        assert codes(client.ask(Api.WRITE_TXN_MARKERS, **marker_values(topic))) == [0]
    assert client.fetch(topic, 0, isolation_level=1).last_stable_offset == 3


def test_late_markers_are_refused(moldau_session_broker: Broker, client: Client) -> None:
    topic = client.create()
    append_open(moldau_session_broker, topic, b"x")
    late_producer = marker_values(topic, producer_epoch=-1)
    answer = client.ask(Api.WRITE_TXN_MARKERS, **late_producer)
    assert codes(answer) == [Error.INVALID_PRODUCER_EPOCH]
    same_epoch = marker_values(topic, transaction_version=2)
    answer = client.ask(Api.WRITE_TXN_MARKERS, **same_epoch)
    assert codes(answer) == [Error.INVALID_PRODUCER_EPOCH]
    newer = marker_values(topic, coordinator_epoch=3)
    assert codes(client.ask(Api.WRITE_TXN_MARKERS, **newer)) == [0]
    answer = client.ask(Api.WRITE_TXN_MARKERS, **marker_values(topic, coordinator_epoch=2))
    assert codes(answer) == [Error.TRANSACTION_COORDINATOR_FENCED]


def test_each_partition_has_an_answer_of_its_own(client: Client) -> None:
    topic = client.create(partitions=2)
    marker = marker_values()["markers"][0]
    topics = [
        {"name": topic, "partition_indexes": [0, 1, 2]},
        {"name": "nobody-made-this", "partition_indexes": [0]},
    ]
    answer = client.ask(
        Api.WRITE_TXN_MARKERS,
        markers=[marker | {"topics": topics}, marker | {"producer_id": 10, "topics": topics[:1]}],
    )
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer) == [0, 0, unknown, unknown, 0, 0, unknown]
    assert [marker.producer_id for marker in answer.markers] == [9, 10]
    assert client.ask(Api.WRITE_TXN_MARKERS, markers=[]).markers == ()


def test_too_few_replicas_take_no_marker(client: Client) -> None:
    topic = client.create(min_insync_replicas="2")
    answer = client.ask(Api.WRITE_TXN_MARKERS, **marker_values(topic))
    assert codes(answer) == [Error.NOT_ENOUGH_REPLICAS]


def test_a_marker_is_answered_when_every_replica_in_sync_has_it(
    moldau_session_broker: Broker, client: Client
) -> None:
    topic = client.create()
    partition: Partition = inside(moldau_session_broker, lambda server: server.partitions[topic, 0])
    inside(moldau_session_broker, lambda server: _hold(partition, True))
    try:
        client.send(Api.WRITE_TXN_MARKERS, **marker_values(topic))
        until_parked(partition)
        client.expect_nothing()
        inside(moldau_session_broker, lambda server: _hold(partition, False))
        assert codes(client.receive()) == [0]
    finally:
        inside(moldau_session_broker, lambda server: _hold(partition, False))


def _hold(partition: Partition, held: bool) -> None:
    """Have the partition wait for a replica that does not answer, or no more."""
    me = partition.leader
    partition.isr = (me, 99) if held else (me,)
    if not held:
        partition.flushed()


def test_who_loses_the_partition_does_not_confirm_its_marker(
    moldau_session_broker: Broker, client: Client
) -> None:
    topic = client.create()
    partition: Partition = inside(moldau_session_broker, lambda server: server.partitions[topic, 0])
    inside(moldau_session_broker, lambda server: _hold(partition, True))
    client.send(Api.WRITE_TXN_MARKERS, **marker_values(topic))
    until_parked(partition)

    def resign(server: Server) -> None:
        partition.resign()
        partition.wake()

    inside(moldau_session_broker, resign)
    assert codes(client.receive()) == [Error.NOT_LEADER_OR_FOLLOWER]


class Owner:
    """The owner of an internal topic, as far as markers go."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, TransactionEnd, Callable[[Error], None]]] = []

    def write_marker(
        self, partition: Partition, end: TransactionEnd, done: Callable[[Error], None]
    ) -> None:
        self.asked.append((partition.topic, end, done))


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        (Error.NONE, Error.NONE),
        (Error.NOT_COORDINATOR, Error.NOT_LEADER_OR_FOLLOWER),
        (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_LEADER_OR_FOLLOWER),
        (Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_EPOCH),
    ],
)
def test_the_owner_of_a_topic_writes_its_markers(
    moldau_session_broker: Broker, client: Client, said: Error, answered: Error
) -> None:
    """KAFKA-17507: who commits offsets in a transaction finds them when it is told so."""
    topic, other = client.create(), client.create()
    owner = Owner()

    def register(server: Server) -> None:
        server.partitions.marker_writers[topic] = owner

    inside(moldau_session_broker, register)
    client.send(Api.WRITE_TXN_MARKERS, **marker_values(topic, other, coordinator_epoch=2))
    client.expect_nothing()
    (name, end, done) = owner.asked.pop()
    assert (name, end) == (topic, TransactionEnd(9, 0, 2, True, 0))

    def answer(server: Server) -> None:
        done(said)
        done(Error.UNKNOWN_SERVER_ERROR)
        del server.partitions.marker_writers[topic]

    inside(moldau_session_broker, answer)
    assert codes(client.receive()) == [answered, 0]
    assert client.end_of(topic) == 0
    assert read_header(client.fetch(other, 0).records).is_control


def test_an_owner_that_answers_at_once_does_not_answer_for_the_others(
    moldau_session_broker: Broker, client: Client
) -> None:
    # Whose marker is to be forced to disk first, which takes a while.
    topic, other = client.create(), client.create(flush_messages="1")

    class Prompt(Owner):
        def write_marker(
            self, partition: Partition, end: TransactionEnd, done: Callable[[Error], None]
        ) -> None:
            done(Error.NOT_COORDINATOR)

    def register(server: Server) -> None:
        server.partitions.marker_writers[topic] = Prompt()

    def withdraw(server: Server) -> None:
        del server.partitions.marker_writers[topic]

    inside(moldau_session_broker, register)
    answer = client.ask(Api.WRITE_TXN_MARKERS, **marker_values(topic, other, coordinator_epoch=2))
    inside(moldau_session_broker, withdraw)
    assert codes(answer) == [Error.NOT_LEADER_OR_FOLLOWER, 0]
    assert read_header(client.fetch(other, 0).records).is_control
