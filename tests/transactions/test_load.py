"""The load notices a broker that breaks transactions: without it the torture could not fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.broker.coordination.groups.offsets import Offsets
from moldau.broker.coordination.transactions import coordinator
from moldau.broker.coordination.transactions.markers import Marker
from moldau.log.log import Log
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.scenarios.ledger import TopicPartition, Wrong
from tests.transactions.checker import Kind, check
from tests.transactions.copiers import Tv1Copier, Tv2Copier
from tests.transactions.history import History, Outcome, Transaction
from tests.transactions.load import Load
from tests.transactions.raw_producer import RawProducer
from tests.transactions.readers import Reader
from tests.transactions.worker import Worker
from tests.transactions.writers import Tv1Writer, Tv2Writer

pytestmark = pytest.mark.slow

ONE, OTHER = TopicPartition("one", 0), TopicPartition("other", 0)
_TRANSACTIONS = 30


@pytest.fixture
def broker() -> Iterator[Broker]:
    few = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    with Broker({**few, **quick}) as broker:
        for place in (ONE, OTHER):
            broker.create_topic(place.topic)
        yield broker


def kinds(broker: Broker, *, copies: bool = False) -> set[Kind]:
    """What the checker finds after a while of transactions in both dialects.

    With `copies`, after copiers have committed some and aborted some.
    """
    bootstrap = broker.bootstrap
    copiers = [
        Tv1Copier("tv1-copier", bootstrap, random.Random(3), "tv1", ONE.topic, [OTHER]),
        Tv2Copier("tv2-copier", bootstrap, random.Random(4), "tv2", [ONE], [OTHER]),
    ]
    load = Load(
        bootstrap,
        [ONE, OTHER],
        [],
        [
            Tv1Writer("tv1", bootstrap, random.Random(1), [ONE, OTHER], set()),
            Tv2Writer("tv2", bootstrap, random.Random(2), [ONE, OTHER], set()),
            *copiers,
        ],
        {"tv1": [ONE], "tv2": [ONE]},
    )
    with load:
        load.go_on(_TRANSACTIONS)
        if copies:
            until(lambda: all(map(_has_ended_both_ways, copiers)), within_s=120)
        return {anomaly.kind for anomaly in check(load.finish())}


def _has_ended_both_ways(worker: Worker) -> bool:
    return min(worker.counts[each.value] for each in (Outcome.COMMITTED, Outcome.ABORTED)) > 1


def test_a_right_broker_shows_no_anomaly(broker: Broker) -> None:
    assert kinds(broker, copies=True) == set()


def commit_what_is_aborted(patch: pytest.MonkeyPatch) -> set[Kind]:
    def commits(*fields: Any) -> Marker:
        return Marker(*fields)._replace(commits=True)

    patch.setattr(coordinator, "Marker", commits)
    return {Kind.ABORTED_READ}


def abort_what_is_committed(patch: pytest.MonkeyPatch) -> set[Kind]:
    def aborts(*fields: Any) -> Marker:
        return Marker(*fields)._replace(commits=False)

    patch.setattr(coordinator, "Marker", aborts)
    return {Kind.LOST_WRITE}


def keep_offsets_of_what_is_aborted(patch: pytest.MonkeyPatch) -> set[Kind]:
    settle = Offsets.settle

    def always(offsets: Offsets, producer_id: int, *, commits: bool) -> None:
        settle(offsets, producer_id, commits=True)

    patch.setattr(Offsets, "settle", always)
    return {Kind.TORN}


def drop_offsets_of_what_is_committed(patch: pytest.MonkeyPatch) -> set[Kind]:
    settle = Offsets.settle

    def never(offsets: Offsets, producer_id: int, *, commits: bool) -> None:
        settle(offsets, producer_id, commits=False)

    patch.setattr(Offsets, "settle", never)
    return {Kind.TORN}


MUTATIONS: list[Callable[[pytest.MonkeyPatch], set[Kind]]] = [
    commit_what_is_aborted,
    abort_what_is_committed,
    keep_offsets_of_what_is_aborted,
    drop_offsets_of_what_is_committed,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda each: each.__name__)
def test_a_mutation_is_noticed(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], set[Kind]],
) -> None:
    expected = mutate(monkeypatch)
    assert kinds(broker, copies=Kind.TORN in expected) >= expected


def test_what_is_shown_while_it_is_open_is_noticed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "last_stable", property(lambda log: log.high_watermark))
    transaction = Transaction("tv2", 0)
    sent = transaction.write(ONE)
    with (
        Reader(broker.bootstrap, [ONE], "a committed reader", is_committed=True) as reader,
        RawProducer(broker.bootstrap, transaction.producer) as producer,
    ):
        producer.begin()
        producer.write(ONE, [(None, sent.value.content)])
        until(lambda: reader.reading.seen)
        transaction.commit_at = time.monotonic()
        producer.end(commits=True)
        transaction.outcome = Outcome.COMMITTED
    history = History([transaction], [reader.reading])
    assert {anomaly.kind for anomaly in check(history)} == {Kind.EARLY_READ}


def test_a_transaction_that_never_ends_is_noticed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave_out_some(*fields: Any) -> Marker:
        marker = Marker(*fields)
        return marker._replace(partitions=marker.partitions[:1])

    monkeypatch.setattr(coordinator, "Marker", leave_out_some)
    monkeypatch.setattr("tests.transactions.load.WITHIN_S", 5.0)
    with pytest.raises(Wrong, match="still waiting for"):
        kinds(broker)
