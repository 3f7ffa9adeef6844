"""Clients that go on through every end of the broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as Position

from tests.torture.messages import Ledger, TopicPartition, Wrong, check_payload, payload

PATIENCE_S = 60.0
_QUICK = {
    "socket.nagle.disable": True,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "log_level": 0,
}


class Outage:
    """Notices that a client has lost its broker, and so has read all that it was ever sent."""

    def __init__(self) -> None:
        self.is_noticed = False

    def __call__(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            self.is_noticed = True


def wait_until(is_so: Callable[[], bool], what: str, turn: Callable[[], object]) -> None:
    """Takes turns until something is so; Wrong if it takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise Wrong(f"after {PATIENCE_S:g} s still not: {what}")
        turn()


class Sender:
    """An idempotent producer with acks=all that numbers its messages per partition."""

    def __init__(self, bootstrap: str, ledgers: dict[TopicPartition, Ledger]) -> None:
        self._ledgers = ledgers
        self._outage = Outage()
        self._producer = Producer(
            {
                **_QUICK,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 20,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "request.timeout.ms": 5000,
                "message.timeout.ms": int(PATIENCE_S * 5000),
                "error_cb": self._outage,
            }
        )
        self._problems: list[Wrong] = []

    def send(self, place: TopicPartition, key: bytes | None = None) -> None:
        ledger = self._ledgers[place]
        number = ledger.sent
        ledger.sent += 1
        if key is not None:
            ledger.newest[key] = number

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._problems.append(Wrong(f"{place}: message {number} failed: {error}"))
                return
            try:
                ledger.on_acknowledged(number, message.offset())
            except Wrong as problem:
                self._problems.append(problem)

        self._producer.produce(
            place.topic,
            payload(place, number),
            key,
            partition=place.partition,
            on_delivery=delivered,
        )

    @property
    def waiting(self) -> int:
        return len(self._producer)

    def poll(self, seconds: float = 0.0) -> None:
        try:
            self._producer.poll(seconds)
        except KafkaException as problem:
            raise Wrong(f"the producer gave up: {problem}") from problem
        if self._problems:
            raise self._problems[0]

    def notice_the_end(self) -> None:
        """Returns when every answer of the broker that has ended is known."""
        wait_until(
            lambda: self._outage.is_noticed, "the producer lost its broker", lambda: self.poll(0.01)
        )

    def expect_an_end(self) -> None:
        self._outage.is_noticed = False

    def finish(self) -> None:
        """Returns when everything has been acknowledged."""
        wait_until(lambda: not self.waiting, "all acknowledged", lambda: self.poll(0.05))


class Watcher:
    """A consumer that reads everything from the beginning and never stops."""

    def __init__(self, bootstrap: str, ledgers: Iterable[Ledger]) -> None:
        self._ledgers = {ledger.place: ledger for ledger in ledgers}
        self._outage = Outage()
        self._consumer = _consumer(bootstrap, error_cb=self._outage)
        self._consumer.assign([Position(*place, OFFSET_BEGINNING) for place in self._ledgers])

    def poll(self, seconds: float = 0.0) -> int:
        """Takes what has come; how many messages that was."""
        messages = self._consumer.consume(1000, seconds)
        for message in messages:
            _raise_fatal(message)
            if message.error() is None:
                place = TopicPartition(str(message.topic()), int(message.partition() or 0))
                self._ledgers[place].on_seen(int(message.offset() or 0), message.value())
        return len(messages)

    def notice_the_end(self) -> None:
        """Returns when everything that was fetched from a broker that has ended is taken."""
        wait_until(
            lambda: self._outage.is_noticed, "the reader lost its broker", lambda: self.poll(0.01)
        )
        while self.poll(0.05):
            pass

    def expect_an_end(self) -> None:
        self._outage.is_noticed = False

    def close(self) -> None:
        self._consumer.close()


def read_newest(bootstrap: str, place: TopicPartition) -> dict[bytes, int]:
    """Reads a partition whole: key to the number of the last message that it has there."""
    consumer = _consumer(bootstrap)
    newest: dict[bytes, int] = {}
    try:
        end = consumer.get_watermark_offsets(Position(*place), timeout=PATIENCE_S)[1]
        consumer.assign([Position(*place, OFFSET_BEGINNING)])
        position = -1
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for message in consumer.consume(1000, 0.05):
                _raise_fatal(message)
                if message.error() is not None:
                    continue
                offset = int(message.offset() or 0)
                if offset <= position:
                    raise Wrong(f"{place}: offset {offset} comes after {position}")
                position = offset
                number = check_payload(place, offset, message.value())
                if number != offset:
                    raise Wrong(f"{place}: message {number} lies at offset {offset}")
                newest[message.key() or b""] = number
            [at] = consumer.position([Position(*place)])
            if at.offset >= end or not end:
                return newest
            if time.monotonic() > deadline:
                raise Wrong(f"{place}: a reader stands at {at.offset}, the end is {end}")
    finally:
        consumer.close()


def _consumer(bootstrap: str, **more: object) -> Consumer:
    return Consumer(
        {
            **_QUICK,
            "bootstrap.servers": bootstrap,
            "group.id": "-",
            "enable.auto.commit": False,
            # A reader's place that is gone is a promise broken, and not to be skipped.
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 10,
            "check.crcs": True,
            **more,
        }
    )


def _raise_fatal(message: Message) -> None:
    error = message.error()
    if error is not None and error.code() not in (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._PARTITION_EOF,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    ):
        raise Wrong(f"a reader of {message.topic()} [{message.partition()}] got {error}")
