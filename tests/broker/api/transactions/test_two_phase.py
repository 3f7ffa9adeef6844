"""Two-phase commit over the wire (KIP-939): transactions that another process ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.broker.server import Broker as Server
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV2, Producer
from tests.broker.wire_client import Client, inside, make_batch, produce_values

FENCED = Error.PRODUCER_FENCED
LATE = Error.INVALID_PRODUCER_EPOCH
WITHIN_S = 20.0


def test_a_two_phase_transaction_is_completed_by_another_process() -> None:
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 10}
    with Broker(often) as broker, Client(broker) as client:
        topic = client.create()
        producer = Producer(broker).init(version=6, timeout=1, enable2_pc=True)
        producer.produce(topic, b"x")
        plain = Producer(broker).init(timeout=500)
        plain.produce(topic, b"y")
        plain.until("CompleteAbort")
        assert producer.state() == "Ongoing", "no time-out ends it"

        other = Producer(broker, id=producer.id)
        answer = other.ask_init(6, enable2_pc=True, keep_prepared_txn=True)
        assert answer.error_code == 0
        ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        assert ongoing == (producer.producer_id, producer.epoch)
        other.become(answer)
        assert producer.ask_end(commits=False).error_code == FENCED
        assert other.ask_produce(topic, b"z").error_code == Error.INVALID_TXN_STATE
        other.end(commits=True)
        other.until("CompleteCommit")
        other.produce(topic, b"next")
        other.end(commits=True)
        for each in (producer, plain, other):
            each.client.close()


def test_two_phase_commit_can_be_turned_off() -> None:
    with Broker({"transaction.two.phase.commit.enable": False}) as broker:
        producer = Producer(broker)
        refusal = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert producer.ask_init(6, enable2_pc=True).error_code == refusal
        both = producer.ask_init(6, enable2_pc=True, keep_prepared_txn=True)
        assert both.error_code == refusal
        assert producer.ask_init(6).error_code == 0
        producer.client.close()


@pytest.fixture
def producer(moldau_broker: Broker) -> Iterator[Producer]:
    with Client(moldau_broker) as client:
        client.create("topic", partitions=2)
        client.ask(Api.FIND_COORDINATOR, 0, key="group")
    producer = Producer(moldau_broker, TV2).init(version=6, enable2_pc=True)
    yield producer
    producer.client.close()


def take_over(broker: Broker, producer: Producer) -> Producer:
    heir = Producer(broker, id=producer.id)
    answer = heir.ask_init(6, enable2_pc=True, keep_prepared_txn=True)
    assert answer.error_code == 0, answer
    heir.become(answer)
    return heir


def committed(broker: Broker) -> list[bytes | None]:
    """Everything that a read-committed consumer finds in the first partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("topic", 0, 0)])
    found: list[bytes | None] = []
    try:
        while True:
            message = consumer.poll(WITHIN_S)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(message.value())
    finally:
        consumer.close()


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_taken_over_does_not_grow_any_more(
    moldau_broker: Broker, producer: Producer, restarts: bool, commits: bool
) -> None:
    """Partitions ask nobody about the writes of a transaction that is open there."""
    producer.produce("topic", b"x")
    heir = take_over(moldau_broker, producer)
    if restarts:
        for each in (producer, heir):
            each.client.close()
        moldau_broker.stop()
        moldau_broker.start()
        for each in (producer, heir):
            each.client = Client(moldau_broker)
        until(lambda: heir.state() == "Ongoing", "transactions to be read back")
    assert producer.ask_produce("topic", b"late").error_code == LATE
    assert producer.ask_produce("topic", b"late", version=11).error_code == LATE
    # Nor does another partition become part of it, whoever writes.
    assert producer.ask_produce("topic", b"late", partition=1).error_code == LATE
    for partition in (0, 1):
        refused = heir.ask_produce("topic", b"z", partition=partition)
        assert refused.error_code == Error.INVALID_TXN_STATE
    assert committed(moldau_broker) == []
    heir.end(commits=commits)
    heir.until("CompleteCommit" if commits else "CompleteAbort")
    assert committed(moldau_broker) == ([b"x"] if commits else [])
    heir.produce("topic", b"next")
    heir.end(commits=True)
    heir.until("CompleteCommit")
    assert committed(moldau_broker)[-1] == b"next"
    heir.client.close()


def test_offsets_of_who_was_taken_over_come_too_late(
    moldau_broker: Broker, producer: Producer
) -> None:
    assert producer.ask_commit_offset("group", "topic", 5) == 0
    heir = take_over(moldau_broker, producer)
    assert producer.ask_commit_offset("group", "topic", 9) == LATE
    heir.end(commits=True)
    heir.until("CompleteCommit")
    topics = [{"name": "topic", "partition_indexes": [0]}]
    answer = heir.client.ask(
        Api.OFFSET_FETCH, 7, group_id="group", topics=topics, require_stable=True
    )
    assert answer.topics[0].partitions[0].committed_offset == 5
    heir.client.close()


def test_each_who_takes_it_over_fences_the_one_before(
    moldau_broker: Broker, producer: Producer
) -> None:
    producer.produce("topic", b"x")
    first = take_over(moldau_broker, producer)
    second = take_over(moldau_broker, producer)
    for each in (producer, first):
        assert each.ask_produce("topic", b"late").error_code == LATE
        assert each.ask_end(commits=True).error_code == FENCED
    second.end(commits=True)
    second.until("CompleteCommit")
    assert committed(moldau_broker) == [b"x"]
    for each in (first, second):
        each.client.close()


def test_a_take_over_that_partitions_were_not_told_of_is_not_answered(
    moldau_broker: Broker, producer: Producer
) -> None:
    """Whoever asks again gets another epoch; the transaction is what it was."""
    producer.produce("topic", b"x")

    def lead(server: Server, is_leader: bool) -> None:
        server.partitions["topic", 0].is_leader = is_leader

    inside(moldau_broker, lambda server: lead(server, False))
    heir = Producer(moldau_broker, id=producer.id)
    values = {"transactional_id": heir.id, "transaction_timeout": 1, "producer_id": -1}
    heir.client.send(
        Api.INIT_PRODUCER_ID, 6, **values, producer_epoch=-1, enable2_pc=True,
        keep_prepared_txn=True,
    )  # fmt: skip
    heir.client.expect_nothing()
    inside(moldau_broker, lambda server: lead(server, True))
    answer = heir.client.receive()
    assert answer.error_code == 0
    heir.become(answer)
    assert producer.ask_produce("topic", b"late").error_code == LATE
    heir.end(commits=True)
    heir.until("CompleteCommit")
    assert committed(moldau_broker) == [b"x"]
    heir.client.close()


def test_an_empty_batch_fences_only_the_producer_that_it_names(
    moldau_broker: Broker, producer: Producer
) -> None:
    """As another broker sends it. One without a producer is what it always was: no batch."""
    producer.produce("topic", b"x")
    with Client(moldau_broker) as client:

        def send(**more: Any) -> int:
            batch = make_batch(**more)
            answer = client.ask(Api.PRODUCE, 12, **produce_values({"topic": {0: batch}}))
            return int(answer.responses[0].partition_responses[0].error_code)

        assert send() == Error.INVALID_RECORD
        assert send(producer_id=producer.producer_id + 1, producer_epoch=5) == 0
        producer.produce("topic", b"y")
        raised = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch + 1}
        assert send(**raised) == 0
        assert send(**raised) == 0
        end = client.end_of("topic")
        assert producer.ask_produce("topic", b"z").error_code == LATE
        assert send(producer_id=producer.producer_id, producer_epoch=producer.epoch) == LATE
        assert client.end_of("topic") == end == 4
