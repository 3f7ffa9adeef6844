"""Copiers: workers that consume, transform and produce, with the offsets in the transaction."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position

from tests.scenarios.clients import IMPATIENT
from tests.scenarios.ledger import TopicPartition
from tests.transactions.history import Outcome, Seen, Transaction, Value
from tests.transactions.worker import PATIENCE_S, TransactionalProducer, Tv1, Tv2

_MOST_AT_ONCE = 20
_POLL_S = 0.2
_REBALANCED = frozenset(
    (
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._STATE,
        KafkaError._UNKNOWN_PARTITION,
    )
)


def group_consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            **IMPATIENT,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
            "fetch.wait.max.ms": 100,
        }
    )


def take(
    consumer: Consumer,
    most: int,
    within_s: float,
    ends: dict[TopicPartition, int] | None = None,
) -> list[Seen]:
    """What a consumer has got, and when; `ends` is told where it has come to the end for now."""
    messages = consumer.consume(most, within_s)
    at = time.monotonic()
    found = []
    for message in messages:
        error = message.error()
        place = TopicPartition(str(message.topic()), int(message.partition() or 0))
        if error is None:
            value = Value.of(message.value() or b"")
            found.append(Seen(place, int(message.offset() or 0), value, at))
        elif error.code() == KafkaError._PARTITION_EOF and ends is not None:
            ends[place] = int(message.offset() or 0)
        elif error.fatal():
            raise KafkaException(error)
    return found


def positions_after(read: Sequence[Seen]) -> dict[TopicPartition, int]:
    return {seen.place: seen.offset + 1 for seen in read}


def rewind(consumer: Consumer, read: Sequence[Seen]) -> None:
    """Go back to what the group has committed, if the partitions are still this member's."""
    wanted = [Position(*place) for place in positions_after(read)]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            for found in consumer.committed(wanted, 5.0):
                if found.error is not None:
                    raise KafkaException(found.error)
                offset = 0 if found.offset == OFFSET_INVALID else found.offset
                consumer.seek(Position(found.topic, found.partition, offset))
        except KafkaException as problem:
            if problem.args[0].code() in _REBALANCED:
                return
            if time.monotonic() > deadline:
                raise
        else:
            return


class Tv1Copier(Tv1):
    """A member of a group that shares the work; the source is shared out anew as brokers die."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        dice: random.Random,
        group: str,
        source: str,
        targets: Sequence[TopicPartition],
    ) -> None:
        super().__init__(name, bootstrap, dice)
        self._group, self._targets_of = group, targets
        self._consumer = group_consumer(bootstrap, group)
        self._consumer.subscribe([source])

    def _turn(self) -> None:
        read = take(self._consumer, _MOST_AT_ONCE, _POLL_S)
        if not read:
            return
        transaction = self._next(self._group)
        transaction.read = read

        def work(producer: Producer) -> None:
            for _ in read:
                self._send(producer, transaction.write(self._dice.choice(self._targets_of)))
            positions = [Position(*place, at) for place, at in positions_after(read).items()]
            metadata = self._consumer.consumer_group_metadata()
            self._insist(producer.send_offsets_to_transaction, positions, metadata)

        self._transact(transaction, work)
        if transaction.outcome is not Outcome.COMMITTED:
            rewind(self._consumer, read)

    def _close(self) -> None:
        self._consumer.close()


class Tv2Copier(Tv2):
    """A copier without members: whoever has the transactional id reads everything."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        dice: random.Random,
        group: str,
        sources: Sequence[TopicPartition],
        targets: Sequence[TopicPartition],
    ) -> None:
        super().__init__(name, bootstrap, dice)
        self._group, self._targets_of = group, targets
        self._consumer = group_consumer(bootstrap, group)
        self._consumer.assign([Position(*place, 0) for place in sources])

    def _turn(self) -> None:
        read = take(self._consumer, _MOST_AT_ONCE, _POLL_S)
        if not read:
            return
        transaction = self._next(self._group)
        transaction.read = read

        def work(producer: TransactionalProducer) -> None:
            for _ in read[:: self._dice.randrange(1, 6)]:
                sent = transaction.write(self._dice.choice(self._targets_of))
                self._write(producer, sent.place, [sent])
            producer.stage(self._group, positions_after(read))

        self._transact(transaction, work)
        if transaction.outcome is not Outcome.COMMITTED:
            self._settle(transaction)
            rewind(self._consumer, read)

    def _settle(self, transaction: Transaction) -> None:
        """Let nobody be left who could still end it: then the group's offsets say what it was."""
        try:
            self._begun()
        except Exception:
            self._die()
            raise

    def _close(self) -> None:
        super()._close()
        self._consumer.close()


_MOVED = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def committed_by(bootstrap: str, group: str, places: Sequence[TopicPartition]) -> dict[Any, int]:
    """Where a group stands."""
    consumer = group_consumer(bootstrap, group)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            try:
                found = consumer.committed([Position(*place) for place in places], PATIENCE_S)
                break
            except KafkaException as problem:
                # librdkafka gives up when the coordinator has just moved.
                if problem.args[0].code() not in _MOVED or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()
    return {
        TopicPartition(each.topic, each.partition): each.offset
        for each in found
        if each.offset != OFFSET_INVALID
    }
