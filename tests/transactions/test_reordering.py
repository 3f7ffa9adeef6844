"""Requests that come late, after later ones of the same producer by another connection.

Kafka's protocol has nothing that orders the requests of two connections (KAFKA-17754; Jepsen's
report on Bufstream 0.1.0). TV1 keeps a producer's epoch from one transaction to the next, so that
a late request of the first is one of the second: the broker cannot know better, and Kafka does the
same. These tests show it, so that nobody takes it for a fault of the broker. TV2 raises the epoch
with every end, and none of it happens.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException, Producer

from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.api.transactions.producing import TV1, TV2
from tests.scenarios.clients import IMPATIENT
from tests.scenarios.ledger import TopicPartition
from tests.transactions.checker import Kind, check
from tests.transactions.copiers import Tv2Copier
from tests.transactions.history import History, Outcome, Transaction
from tests.transactions.load import Load, expect_none
from tests.transactions.raw_producer import RawProducer
from tests.transactions.reordering_proxy import ReorderingProxy
from tests.transactions.writers import Tv2Writer

ONE, OTHER = TopicPartition("topic", 0), TopicPartition("topic", 1)
_WITHIN_S = 60.0
_SECONDS = 3.0
_SETTINGS = {
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.num.partitions": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}


@pytest.fixture
def proxy() -> Iterator[ReorderingProxy]:
    with (
        ReorderingProxy() as proxy,
        Broker({**_SETTINGS, "advertised.listeners": f"PLAINTEXT://{proxy.address}"}) as broker,
    ):
        proxy.forward_to(broker.host, broker.port)
        broker.create_topic("topic", partitions=2)
        yield proxy


class Story:
    """One producer's transactions, and what a reader of committed records sees in the end."""

    def __init__(self, proxy: ReorderingProxy, dialect: int) -> None:
        self._proxy = proxy
        self.producer = RawProducer(proxy.address, "txn", dialect)
        self.producer.begin()
        self.history = History(is_whole=True)

    def begin(self) -> Transaction:
        transaction = Transaction("p", len(self.history.transactions))
        self.history.transactions.append(transaction)
        return transaction

    def write(self, transaction: Transaction, place: TopicPartition) -> None:
        sent = transaction.write(place)
        (sent.offset,) = self.producer.write(place, [(None, sent.value.content)])
        sent.is_acknowledged = True

    def end(self, transaction: Transaction, *, commits: bool) -> None:
        if commits:
            transaction.commit_at = time.monotonic()
        self.producer.end(commits=commits)
        transaction.outcome = Outcome.COMMITTED if commits else Outcome.ABORTED

    def kinds(self) -> set[Kind]:
        """The anomalies; the producer hangs up, and nothing is left open."""
        self.producer.close()
        load = Load(self._proxy.address, [ONE, OTHER], [], [], {})
        with load:
            self.history.readings += load.finish().readings
        return {anomaly.kind for anomaly in check(self.history)}


@pytest.mark.parametrize("dialect", [TV1, TV2])
@pytest.mark.parametrize("commits", [True, False])
def test_a_late_end(proxy: ReorderingProxy, dialect: int, commits: bool) -> None:
    story = Story(proxy, dialect)
    first = story.begin()
    story.write(first, ONE)
    proxy.hold(Api.END_TXN)
    # The first request is on its way for long; a second one does the same.
    story.end(first, commits=commits)
    assert proxy.held == 1
    second = story.begin()
    story.write(second, ONE)
    proxy.release()
    story.write(second, OTHER)
    story.end(second, commits=not commits)
    if dialect == TV2:
        assert story.kinds() == set()
    elif commits:
        # It committed what the producer then aborted.
        assert story.kinds() == {Kind.ABORTED_READ}
    else:
        # It aborted half of what the producer then committed.
        assert story.kinds() == {Kind.LOST_WRITE, Kind.TORN}


@pytest.mark.parametrize("dialect", [TV1, TV2])
def test_a_late_write(proxy: ReorderingProxy, dialect: int) -> None:
    """Of a transaction that its producer aborted, since it got no answer.

    Clients of TV1 ask for another epoch then (KIP-360), because of this; here one does not."""
    story = Story(proxy, dialect)
    first = story.begin()
    lost = first.write(ONE)
    proxy.hold(Api.PRODUCE)
    story.producer.patience_s = 0.0
    with pytest.raises(TimeoutError):
        story.producer.write(ONE, [(None, lost.value.content)])
    story.producer.patience_s = _WITHIN_S
    assert proxy.held == 1
    story.end(first, commits=False)
    second = story.begin()
    story.producer.add(ONE)
    proxy.release()
    story.write(second, ONE)
    story.end(second, commits=True)
    if dialect == TV2:
        assert story.kinds() == set()
    else:
        # The late one took the place of the next, which was then taken for a repetition.
        assert story.kinds() >= {Kind.ABORTED_READ, Kind.LOST_WRITE}


@pytest.mark.parametrize("dialect", [TV1, TV2])
def test_a_late_repetition_of_a_write_is_known_by_its_sequence(
    proxy: ReorderingProxy, dialect: int
) -> None:
    story = Story(proxy, dialect)
    first = story.begin()
    proxy.hold(Api.PRODUCE)
    story.write(first, ONE)
    assert proxy.held == 1
    story.end(first, commits=True)
    second = story.begin()
    story.write(second, ONE)
    proxy.release()
    story.write(second, ONE)
    story.end(second, commits=True)
    assert story.kinds() == set()


def test_a_late_partition_of_tv1_leaves_nothing_open(proxy: ReorderingProxy) -> None:
    """It begins a transaction that has nothing in it. In TV2 leaders add partitions."""
    story = Story(proxy, TV1)
    first = story.begin()
    proxy.hold(Api.ADD_PARTITIONS_TO_TXN)
    story.write(first, ONE)
    assert proxy.held == 1
    story.end(first, commits=True)
    proxy.release()
    second = story.begin()
    story.write(second, OTHER)
    story.end(second, commits=False)
    assert story.kinds() == set()


def test_librdkafka_has_the_hole_of_its_dialect(proxy: ReorderingProxy) -> None:
    producer = Producer(
        {**IMPATIENT, "bootstrap.servers": proxy.address, "transactional.id": "librdkafka"}
    )
    producer.init_transactions(_WITHIN_S)
    history = History(is_whole=True)
    for number, commits in enumerate((True, False)):
        transaction = Transaction("p", number)
        history.transactions.append(transaction)
        producer.begin_transaction()
        sent = transaction.write(ONE)
        producer.produce(ONE.topic, sent.value.content, partition=ONE.partition)
        assert producer.flush(_WITHIN_S) == 0
        if commits:
            proxy.hold(Api.END_TXN)
            transaction.commit_at = time.monotonic()
            producer.commit_transaction(_WITHIN_S)
            transaction.outcome = Outcome.COMMITTED
            assert proxy.held == 1
        else:
            proxy.release()
            # It is told that it is too late, and gives up.
            with suppress(KafkaException):
                producer.abort_transaction(_WITHIN_S)
    load = Load(proxy.address, [ONE], [], [], {})
    with load:
        history.readings += load.finish().readings
    assert {anomaly.kind for anomaly in check(history)} == {Kind.ABORTED_READ}


def test_tv2_shows_no_anomaly_however_late_requests_come(proxy: ReorderingProxy) -> None:
    dice = random.Random(17754)

    def own() -> random.Random:
        return random.Random(dice.randrange(1 << 32))

    writers = [Tv2Writer(name, proxy.address, own(), [ONE, OTHER], set()) for name in "ab"]
    copier = Tv2Copier("copier", proxy.address, own(), "group", [ONE], [OTHER])
    load = Load(proxy.address, [ONE, OTHER], [], [*writers, copier], {"group": [ONE]})
    with load:
        load.go_on()
        proxy.shuffle(own(), {Api.PRODUCE, Api.END_TXN, Api.TXN_OFFSET_COMMIT}, 0.1)
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until or not proxy.late:
            load.go_on()
        expect_none(check(load.finish()))
