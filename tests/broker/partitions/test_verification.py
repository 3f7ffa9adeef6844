"""Transactional writes over the wire, and what a coordinator says before the first of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from moldau.broker.partitions.verification import refusal_of
from moldau.broker.server import Broker as Server
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, inside, make_batch, produce_values


class Coordinator:
    """Answers what a test says, when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self.answers: dict[TopicPartition, Error] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, Error]:
        self.asked.append((transactional_id, producer_id, epoch, list(partitions), adds))
        await self.may_answer.wait()
        return self.answers


@pytest.fixture
def coordinator(moldau_session_broker: Broker) -> Iterator[Coordinator]:
    made = Coordinator()

    def place(server: Server, verifier: Coordinator | None) -> Any:
        before, server.partitions.verifier = server.partitions.verifier, verifier
        return before

    before = inside(moldau_session_broker, lambda server: place(server, made))
    yield made
    inside(moldau_session_broker, lambda server: place(server, before))


def part(*values: bytes, sequence: int = 0, epoch: int = 0, producer_id: int = 9) -> bytearray:
    return make_batch(
        *values,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def send(client: Client, batches: Mapping[str, Mapping[int, Any]], version: int = 11) -> None:
    values = produce_values(batches)
    client.send(Api.PRODUCE, version, **values, transactional_id="t")


def answers(client: Client) -> list[int]:
    return [
        partition.error_code
        for topic in client.receive().responses
        for partition in topic.partition_responses
    ]


def produce(client: Client, topic: str, batch: bytearray, version: int = 11) -> int:
    send(client, {topic: {0: batch}}, version)
    return answers(client)[0]


def end(client: Client, topic: str, *, epoch: int = 0, version: int = 0) -> None:
    marker = {
        "producer_id": 9,
        "producer_epoch": epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_version": version,
    }
    answer = client.ask(Api.WRITE_TXN_MARKERS, markers=[marker])
    assert answer.markers[0].topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize(("version", "adds"), [(3, False), (11, False), (12, True)])
def test_the_coordinator_is_asked_once_a_transaction(
    client: Client, coordinator: Coordinator, version: int, adds: bool
) -> None:
    topic = client.create()
    for sequence in range(3):
        assert produce(client, topic, part(b"x", sequence=sequence), version) == 0
    assert coordinator.asked == [("t", 9, 0, [(topic, 0)], adds)]
    assert client.fetch(topic, 0, isolation_level=1).last_stable_offset == 0
    end(client, topic)
    assert produce(client, topic, part(b"y", sequence=3), version) == 0
    assert len(coordinator.asked) == 2


def test_one_question_covers_all_partitions_of_a_request(
    client: Client, coordinator: Coordinator
) -> None:
    topic, other = client.create(partitions=3), client.create()
    coordinator.answers = {(topic, 1): Error.INVALID_TXN_STATE}
    send(
        client,
        {
            topic: {0: part(b"a"), 1: part(b"b"), 7: part(b"c")},
            other: {0: make_batch(b"plain")},
        },
    )
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert answers(client) == [0, Error.INVALID_TXN_STATE, unknown, 0]
    assert coordinator.asked == [("t", 9, 0, [(topic, 0), (topic, 1)], False)]


def test_a_marker_that_comes_while_the_coordinator_is_asked_makes_its_answer_worthless(
    moldau_session_broker: Broker, client: Client, coordinator: Coordinator
) -> None:
    """Otherwise the write would begin a transaction that nobody ends."""
    topic = client.create()
    coordinator.may_answer.clear()
    send(client, {topic: {0: part(b"late")}})
    until(lambda: coordinator.asked, "a question")
    with Client(moldau_session_broker) as other:
        end(other, topic)
    inside(moldau_session_broker, lambda server: coordinator.may_answer.set())
    assert answers(client) == [Error.INVALID_TXN_STATE]
    answer = client.fetch(topic, 0, isolation_level=1)
    assert (answer.high_watermark, answer.last_stable_offset) == (1, 1)


def test_the_marker_of_the_last_transaction_may_come_while_the_next_one_is_asked_about(
    moldau_session_broker: Broker, client: Client, coordinator: Coordinator
) -> None:
    """TV2: the coordinator answers when the last one is complete, which its marker precedes."""
    topic = client.create()
    assert produce(client, topic, part(b"first"), 12) == 0
    coordinator.may_answer.clear()
    send(client, {topic: {0: part(b"second", epoch=1)}}, 12)
    until(lambda: len(coordinator.asked) == 2, "a question")
    with Client(moldau_session_broker) as other:
        end(other, topic, epoch=1, version=2)
    inside(moldau_session_broker, lambda server: coordinator.may_answer.set())
    assert answers(client) == [0]
    with Client(moldau_session_broker) as other:
        end(other, topic, epoch=2, version=2)
    answer = client.fetch(topic, 0, isolation_level=1)
    assert (answer.high_watermark, answer.last_stable_offset) == (4, 4)


def test_requests_behind_one_that_is_verified_keep_their_order(
    moldau_session_broker: Broker, client: Client, coordinator: Coordinator
) -> None:
    topic = client.create()
    coordinator.may_answer.clear()
    for sequence in range(5):
        send(client, {topic: {0: part(b"%d" % sequence, sequence=sequence)}})
    until(lambda: coordinator.asked, "a question")
    client.expect_nothing()
    inside(moldau_session_broker, lambda server: coordinator.may_answer.set())
    assert [answers(client) for _ in range(5)] == [[0]] * 5
    assert client.values(topic) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(coordinator.asked) == 1


def test_a_large_write_and_one_to_a_compacted_topic_are_verified_too(
    client: Client, coordinator: Coordinator
) -> None:
    topic = client.create(max_message_bytes=str(8 << 20))
    assert produce(client, topic, part(bytes(5 << 20))) == 0
    compacted = client.create(cleanup_policy="compact")
    keyed = make_batch(
        b"v", key=b"k", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    assert produce(client, compacted, keyed) == 0
    assert [asked[3] for asked in coordinator.asked] == [[(topic, 0)], [(compacted, 0)]]
    coordinator.answers = {(compacted, 0): Error.PRODUCER_FENCED}
    end(client, compacted)
    assert produce(client, compacted, keyed) == Error.INVALID_PRODUCER_EPOCH


def test_a_request_speaks_for_one_producer(client: Client, coordinator: Coordinator) -> None:
    topic = client.create(partitions=2)
    send(client, {topic: {0: part(b"a"), 1: part(b"b", producer_id=10)}})
    assert answers(client) == [Error.INVALID_PRODUCER_ID_MAPPING] * 2
    assert not coordinator.asked


def test_clients_may_not_end_transactions_themselves(
    client: Client, coordinator: Coordinator
) -> None:
    topic = client.create()
    batch = make_batch(
        b"x",
        key=b"\x00\x00\x00\x01",
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
        is_control=True,
    )
    assert produce(client, topic, batch) == Error.INVALID_RECORD
    assert client.end_of(topic) == 0


def test_an_older_epoch_is_fenced_by_the_marker(client: Client, coordinator: Coordinator) -> None:
    topic = client.create()
    assert produce(client, topic, part(b"x"), 12) == 0
    end(client, topic, epoch=1, version=2)
    assert produce(client, topic, part(b"late", sequence=1), 12) == Error.INVALID_PRODUCER_EPOCH
    assert produce(client, topic, part(b"next", epoch=1), 12) == 0


def test_plain_writes_ask_nobody(client: Client, coordinator: Coordinator) -> None:
    topic = client.create()
    assert produce(client, topic, make_batch(b"x")) == 0
    numbered = make_batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0)
    assert client.produce(topic, numbered).error_code == 0
    assert not coordinator.asked


def test_a_plain_write_of_a_producer_with_an_open_transaction_is_refused(
    client: Client, coordinator: Coordinator
) -> None:
    topic = client.create()
    assert produce(client, topic, part(b"x")) == 0
    plain = make_batch(b"y", producer_id=9, producer_epoch=0, base_sequence=1)
    assert produce(client, topic, plain) == Error.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("said", "version", "answered"),
    [
        (Error.INVALID_TXN_STATE, 3, Error.INVALID_TXN_STATE),
        (Error.PRODUCER_FENCED, 12, Error.INVALID_PRODUCER_EPOCH),
        (Error.NOT_COORDINATOR, 11, Error.NOT_ENOUGH_REPLICAS),
        (Error.COORDINATOR_LOAD_IN_PROGRESS, 12, Error.NOT_ENOUGH_REPLICAS),
        (Error.NETWORK_EXCEPTION, 12, Error.NOT_ENOUGH_REPLICAS),
        (Error.CONCURRENT_TRANSACTIONS, 11, Error.NOT_ENOUGH_REPLICAS),
        (Error.CONCURRENT_TRANSACTIONS, 12, Error.CONCURRENT_TRANSACTIONS),
        (Error.TRANSACTION_ABORTABLE, 10, Error.INVALID_TXN_STATE),
        (Error.TRANSACTION_ABORTABLE, 11, Error.TRANSACTION_ABORTABLE),
        (Error.INVALID_PRODUCER_ID_MAPPING, 10, Error.INVALID_PRODUCER_ID_MAPPING),
        (Error.INVALID_PRODUCER_ID_MAPPING, 11, Error.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_coordinators_refusal_is_told_in_words_that_the_client_knows(
    said: Error, version: int, answered: Error
) -> None:
    error, reason = refusal_of(said, version)
    assert error is answered
    explained = (Error.INVALID_TXN_STATE, Error.NOT_ENOUGH_REPLICAS)
    assert (reason is not None) == (answered in explained)


@pytest.mark.parametrize("nonsense", [None, b"", bytes(20)])
def test_a_transactional_write_without_a_batch_is_refused_alone(
    client: Client, coordinator: Coordinator, nonsense: bytes | None
) -> None:
    topic = client.create(partitions=2)
    send(client, {topic: {0: nonsense, 1: part(b"x")}})
    first, second = answers(client)
    assert (bool(first), second) == (True, 0)
    assert coordinator.asked == [("t", 9, 0, [(topic, 1)], False)]


def test_a_transaction_of_version_2_begins_with_sequence_0(
    client: Client, coordinator: Coordinator
) -> None:
    topic = client.create()
    assert produce(client, topic, part(b"x", sequence=3), 11) == 0
    other = client.create()
    late = part(b"x", sequence=3)
    assert produce(client, other, late, 12) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("version", [11, 12])
def test_the_first_batch_of_a_transaction_that_is_sent_again_is_written_once(
    client: Client, coordinator: Coordinator, version: int
) -> None:
    topic = client.create()
    for _ in range(2):
        assert produce(client, topic, part(b"x"), version) == 0
    assert client.end_of(topic) == 1
