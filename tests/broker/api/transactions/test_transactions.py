"""Transactions over the wire: both dialects, and who is refused what."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from moldau.broker.server import Broker as Server
from moldau.cluster.state.changes import BrokerJoined
from moldau.cluster.state.topics import BrokerInfo
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV1, TV2, Producer, fresh_id
from tests.broker.wire_client import Client, inside, versions

FENCED, OLD_FENCED = Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH


@pytest.fixture(params=[TV1, TV2])
def producer(request: pytest.FixtureRequest, moldau_session_broker: Broker) -> Iterator[Producer]:
    producer = Producer(moldau_session_broker, request.param).init()
    yield producer
    producer.client.close()


def last_stable(client: Client, topic: str, partition: int = 0) -> int:
    answer = client.fetch(topic, 0, partition=partition, isolation_level=1)
    return int(answer.last_stable_offset)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_ends_in_all_of_its_partitions(
    producer: Producer, client: Client, commits: bool
) -> None:
    topic = client.create(partitions=2)
    for number in range(3):
        for partition in (0, 1):
            producer.produce(topic, b"x", b"y", partition=partition)
        assert producer.state() == "Ongoing"
        assert last_stable(client, topic) == 3 * number
        producer.end(commits=commits)
        producer.until("CompleteCommit" if commits else "CompleteAbort")
        assert [last_stable(client, topic, each) for each in (0, 1)] == [3 * (number + 1)] * 2
    described = producer.describe()
    assert (described.producer_id, described.topics) == (producer.producer_id, ())
    assert described.producer_epoch == (3 if producer.dialect == TV2 else 0)


def test_a_second_producer_aborts_what_the_first_left_open_and_fences_it(
    producer: Producer, moldau_session_broker: Broker, client: Client
) -> None:
    topic = client.create()
    producer.produce(topic, b"x")
    other = Producer(moldau_session_broker, producer.dialect, producer.id)
    assert other.ask_init().error_code == Error.CONCURRENT_TRANSACTIONS
    other.init()
    assert other.producer_id == producer.producer_id
    assert other.epoch == producer.epoch + 2
    assert producer.ask_end(commits=True, version=3).error_code == FENCED
    assert producer.ask_produce(topic, b"late").error_code == OLD_FENCED
    assert last_stable(client, topic) == 2
    other.produce(topic, b"y")
    other.end(commits=True)
    other.client.close()


def test_an_end_whose_answer_was_lost_is_asked_for_again(
    producer: Producer, client: Client
) -> None:
    topic = client.create()
    producer.produce(topic, b"x")
    first = producer.ask_end(commits=True)
    assert first.error_code == 0
    producer.until("CompleteCommit")
    again = producer.ask_end(commits=True)
    assert again.error_code == 0
    if producer.dialect == TV2:
        assert (again.producer_id, again.producer_epoch) == (
            first.producer_id,
            first.producer_epoch,
        )
    assert producer.ask_end(commits=False).error_code == Error.INVALID_TXN_STATE
    assert client.end_of(topic) == 2, "one marker"


def test_a_late_end_of_tv2_does_not_end_the_next_transaction(
    moldau_session_broker: Broker, client: Client
) -> None:
    topic = client.create()
    producer = Producer(moldau_session_broker, TV2).init()
    producer.produce(topic, b"x")
    late = producer.who
    producer.end(commits=True)
    producer.produce(topic, b"y")
    for commits in (True, False):
        assert producer.ask_end(commits=commits, **late).error_code == FENCED
    assert producer.state() == "Ongoing"
    # A late write of the first transaction does not begin anything either.
    before = producer.epoch
    producer.epoch = late["producer_epoch"]
    assert producer.ask_produce(topic, b"z").error_code == OLD_FENCED
    producer.epoch = before
    producer.end(commits=True)
    producer.client.close()


def test_tv2_aborts_without_a_partition(moldau_session_broker: Broker) -> None:
    producer = Producer(moldau_session_broker, TV2).init()
    for epoch in (1, 2):
        producer.end(commits=False)
        assert producer.epoch == epoch
        producer.until("CompleteAbort")
    assert producer.ask_end(commits=True).error_code == Error.INVALID_TXN_STATE
    producer.client.close()


def test_tv1_aborts_nothing_without_an_error(moldau_session_broker: Broker) -> None:
    """librdkafka #4849: Kafka refuses it, and the client gives up."""
    producer = Producer(moldau_session_broker, TV1).init()
    assert producer.ask_end(commits=False).error_code == 0
    assert producer.ask_end(commits=True).error_code == Error.INVALID_TXN_STATE
    producer.client.close()


@pytest.mark.parametrize("version", versions(Api.END_TXN))
def test_an_end_by_the_wrong_producer_is_refused(
    moldau_session_broker: Broker, client: Client, version: int
) -> None:
    topic = client.create()
    producer = Producer(moldau_session_broker).init()
    producer.produce(topic, b"x")

    def code(**more: Any) -> int:
        return int(producer.ask_end(commits=True, version=version, **more).error_code)

    assert code(producer_epoch=producer.epoch + 1) == (FENCED if version >= 2 else OLD_FENCED)
    assert code(producer_id=producer.producer_id + 1) == Error.INVALID_PRODUCER_ID_MAPPING
    assert code(transactional_id=fresh_id()) == Error.INVALID_PRODUCER_ID_MAPPING
    assert code(transactional_id="") == Error.INVALID_REQUEST
    answer = producer.ask_end(commits=True, version=version, producer_epoch=9)
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert producer.state() == "Ongoing"
    producer.client.close()


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_by_their_producer_only(
    moldau_session_broker: Broker, client: Client, version: int
) -> None:
    topic = client.create()
    producer = Producer(moldau_session_broker, TV1).init()

    def add(*partitions: tuple[str, int], **more: Any) -> list[int]:
        return producer.ask_add(*partitions, version=version, **more)

    assert add((topic, 0), producer_epoch=7) == [FENCED if version >= 2 else OLD_FENCED]
    assert add((topic, 0), producer_id=7_777) == [Error.INVALID_PRODUCER_ID_MAPPING]
    assert add((topic, 0), transactional_id=fresh_id()) == [Error.INVALID_PRODUCER_ID_MAPPING]
    assert add((topic, 0), transactional_id="") == [Error.INVALID_REQUEST]
    assert add((topic, 0), (topic, 1), ("none-such", 0)) == [
        Error.OPERATION_NOT_ATTEMPTED,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert add(("__transaction_state", 0)) == [Error.TOPIC_AUTHORIZATION_FAILED]
    assert producer.state() == "Empty"
    assert add((topic, 0)) == [0]
    assert add((topic, 0)) == [0]
    assert producer.state() == "Ongoing"
    producer.client.close()


def test_a_write_to_a_partition_that_was_not_added_is_refused(
    moldau_session_broker: Broker, client: Client
) -> None:
    topic = client.create(partitions=2)
    producer = Producer(moldau_session_broker, TV1).init()
    assert producer.ask_add((topic, 0)) == [0]
    result = producer.ask_produce(topic, b"x", partition=1, version=10)
    assert result.error_code == Error.INVALID_TXN_STATE
    result = producer.ask_produce(topic, b"x", partition=1, version=11)
    assert result.error_code == Error.TRANSACTION_ABORTABLE
    assert client.end_of(topic, 1) == 0
    producer.client.close()


@pytest.mark.parametrize("version", versions(Api.INIT_PRODUCER_ID))
def test_producers_that_may_not_begin_are_told_why(
    moldau_session_broker: Broker, version: int
) -> None:
    producer = Producer(moldau_session_broker)
    for timeout in (0, -1, 900_001):
        answer = producer.ask_init(version, timeout=timeout)
        assert answer.error_code == Error.INVALID_TRANSACTION_TIMEOUT
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    producer.init()
    if version >= 3:
        wrong = {"producer_id": producer.producer_id, "producer_epoch": 9}
        code = producer.ask_init(version, **wrong).error_code
        assert code == (FENCED if version >= 4 else OLD_FENCED)
        half = {"producer_id": 5, "producer_epoch": -1}
        assert producer.ask_init(version, **half).error_code == Error.INVALID_REQUEST
        mine = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        for _ in range(2):
            answer = producer.ask_init(version, **mine)
            assert (answer.error_code, answer.producer_epoch) == (0, producer.epoch + 1)
    producer.client.close()


def test_an_end_finds_topics_that_were_deleted_meanwhile(
    producer: Producer, client: Client
) -> None:
    topic, gone = client.create(), client.create()
    for each in (topic, gone):
        producer.produce(each, b"x")
    client.ask(Api.DELETE_TOPICS, topics=[{"name": gone}], timeout=5_000)
    producer.end(commits=True)
    producer.until("CompleteCommit")
    assert last_stable(client, topic) == 2


def test_there_are_no_transactions_while_a_broker_knows_none(moldau_broker: Broker) -> None:
    """An earlier version neither takes markers nor verifies writes."""
    old = BrokerJoined(BrokerInfo(9, "elsewhere", 9092, keeps_elr=True))
    inside(moldau_broker, lambda server: server.state.apply(old))
    with Client(moldau_broker) as client:
        answer = client.ask(Api.FIND_COORDINATOR, 1, key="t", key_type=1)
        assert answer.error_code == Error.COORDINATOR_NOT_AVAILABLE
        values = {"transactional_id": "t", "transaction_timeout": 1_000}
        answer = client.ask(Api.INIT_PRODUCER_ID, 1, **values)
        assert answer.error_code == Error.COORDINATOR_NOT_AVAILABLE
        answer = client.ask(Api.INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout=1)
        assert answer.error_code == 0
    producer = Producer(moldau_broker)
    assert not inside(moldau_broker, lambda server: server.transactions.shards.has_topic)
    producer.client.close()


# Time


def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced() -> None:
    """KAFKA-20785: a commit that comes too late must be PRODUCER_FENCED in either dialect."""
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 10}
    with Broker(often) as broker, Client(broker) as client:
        topic = client.create()
        for dialect in (TV1, TV2):
            producer = Producer(broker, dialect).init(timeout=1_000)
            producer.produce(topic, b"x")
            producer.until("CompleteAbort")
            assert producer.describe().producer_epoch == 1
            version = 5 if dialect == TV2 else 3
            assert producer.ask_end(commits=True, version=version).error_code == FENCED
            assert last_stable(client, topic) == client.end_of(topic)
            producer.client.close()
        # An abort of TV2 finds what it wanted done, and the producer goes on.
        producer.epoch = 0
        producer.client = Client(broker)
        producer.end(commits=False)
        assert producer.epoch == 1
        producer.client.close()


def test_an_id_that_nobody_uses_is_forgotten(moldau_broker: Broker) -> None:
    broker = moldau_broker
    with Client(broker) as client:
        topic = client.create()
        producer, busy = Producer(broker).init(), Producer(broker).init()
        busy.produce(topic, b"x")

        def expire(server: Server) -> Coroutine[Any, Any, None]:
            later = server.node.now_ms() + server.settings.transactional_id_expiration_ms
            server.transactions._host.now_ms = lambda: later  # type: ignore[method-assign]
            return server.transactions.forget_expired()

        broker._call(inside(broker, expire))
        assert producer.describe().error_code == Error.TRANSACTIONAL_ID_NOT_FOUND
        assert busy.state() == "Ongoing"
        assert producer.ask_end(commits=True).error_code == Error.INVALID_PRODUCER_ID_MAPPING
        before = producer.producer_id
        producer.init(producer_id=before, producer_epoch=producer.epoch)
        assert producer.producer_id != before
        for each in (producer, busy):
            each.client.close()
