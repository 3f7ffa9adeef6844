"""Clients that work in the background while things happen to the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as Position

from tests.scenarios.ledger import Label, Ledger, TopicPartition, Wrong, label_of, payload

PATIENCE_S = 120.0
# A client that notices soon that a broker has fallen silent.
IMPATIENT: dict[str, Any] = {
    "socket.timeout.ms": 3000,
    "socket.connection.setup.timeout.ms": 3000,
    "socket.nagle.disable": True,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
# What tells a client that the cluster is changing, and what it deals with by itself.
PASSING = frozenset(
    (
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._PARTITION_EOF,
    )
)
_MOST_WAITING = 400
_PER_TURN = 10


class Background:
    """Work that goes on in a thread of its own until the `with` block ends."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._is_over = threading.Event()
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self._ledger.on_problem(f"{self._thread.name} did not end within {PATIENCE_S:g} s")

    def abandon(self) -> None:
        """End soon, whatever is still to be done: the play has failed."""
        self._is_abandoned = True
        self._is_over.set()

    def _run(self) -> None:
        try:
            self._begin()
            while not self._is_over.is_set():
                self._turn()
            self._end()
        except Wrong as problem:
            self._ledger.on_problem(str(problem))
        except KafkaException as problem:
            self._ledger.on_problem(f"{self._thread.name} failed: {problem}")

    def _begin(self) -> None:
        pass

    def _turn(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        pass

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._ledger.on_problem(f"{self._thread.name} gave up: {error}")


class Writer(Background):
    """An idempotent producer with acks=all, which gives each partition its turn.

    No message may fail: whatever happens to the cluster, the client has time to try again.
    """

    def __init__(
        self,
        bootstrap: str,
        ledger: Ledger,
        places: Sequence[TopicPartition],
        number: int = 0,
        rate: float = 1000.0,
    ) -> None:
        super().__init__(ledger)
        self._places = list(places)
        self._number = number
        self._pause_s = _PER_TURN / rate
        self._next = 0
        self._is_paused = threading.Event()
        self._producer = Producer(
            {
                **IMPATIENT,
                "bootstrap.servers": bootstrap,
                "client.id": f"writer-{number}",
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 20,
                "request.timeout.ms": 3000,
                "message.timeout.ms": int(PATIENCE_S * 5000),
                "error_cb": self._on_error,
            }
        )

    def pause(self) -> None:
        self._is_paused.set()

    def resume(self) -> None:
        self._is_paused.clear()

    def _turn(self) -> None:
        if len(self._producer) < _MOST_WAITING and not self._is_paused.is_set():
            for _ in range(_PER_TURN):
                self._send()
        self._producer.poll(self._pause_s)

    def _send(self) -> None:
        place = self._places[self._next % len(self._places)]
        label = Label(self._number, self._next)
        self._next += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._ledger.on_problem(f"{place}: {label} failed: {error}")
            else:
                self._ledger.on_acknowledged(place, label, message.offset())

        self._producer.produce(
            place.topic, payload(label), partition=place.partition, on_delivery=delivered
        )

    def _end(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self._producer) and time.monotonic() < deadline and not self._is_abandoned:
            self._producer.poll(0.05)
        if len(self._producer):
            self._ledger.on_problem(
                f"{len(self._producer)} messages were not acknowledged within {PATIENCE_S:g} s"
            )


class Reader(Background):
    """A consumer without a group that reads everything from the beginning, and goes on."""

    def __init__(self, bootstrap: str, ledger: Ledger, places: Sequence[TopicPartition]) -> None:
        super().__init__(ledger)
        self._next = dict.fromkeys(places, 0)
        self._newest: dict[tuple[TopicPartition, int], int] = {}
        self._consumer = _consumer(bootstrap, "-", error_cb=self._on_error)
        self._consumer.assign([Position(*place, OFFSET_BEGINNING) for place in places])

    def _turn(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            if not _is_message(message):
                continue
            place = TopicPartition(str(message.topic()), int(message.partition() or 0))
            offset = int(message.offset() or 0)
            label = label_of(message.value())
            if offset != self._next[place]:
                raise Wrong(f"{place}: a reader at {self._next[place]} saw offset {offset} next")
            self._next[place] = offset + 1
            if label.number <= self._newest.get((place, label.producer), -1):
                raise Wrong(f"{place} offset {offset}: {label} comes after a later one")
            self._newest[place, label.producer] = label.number
            self._ledger.on_seen(place, offset, label)

    def _end(self) -> None:
        self._consumer.close()


class Member(Background):
    """A member of a group, which commits what it has read.

    `taken` has each offset that it was given; a group that changes hands may give one twice.
    """

    def __init__(
        self, bootstrap: str, ledger: Ledger, topic: str, group: str, protocol: str = "classic"
    ) -> None:
        super().__init__(ledger)
        timeouts = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}
        self.taken: set[tuple[TopicPartition, int]] = set()
        self._consumer = _consumer(
            bootstrap,
            group,
            enable_auto_commit=True,
            auto_commit_interval_ms=200,
            auto_offset_reset="earliest",
            group_protocol=protocol,
            # In the newer protocol the broker has these.
            **(timeouts if protocol == "classic" else {}),
            error_cb=self._on_error,
        )
        self._consumer.subscribe([topic])

    def _turn(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            if _is_message(message):
                place = TopicPartition(str(message.topic()), int(message.partition() or 0))
                offset = int(message.offset() or 0)
                self._ledger.on_seen(place, offset, label_of(message.value()))
                self.taken.add((place, offset))

    def _end(self) -> None:
        self._consumer.close()


def read_all(bootstrap: str, place: TopicPartition, at_least: int = 0) -> dict[int, Label]:
    """A partition from beginning to end, and at least up to an offset that must be there."""
    consumer = _consumer(bootstrap, "-")
    found: dict[int, Label] = {}
    deadline = time.monotonic() + PATIENCE_S
    try:
        end = _end_of(consumer, place, at_least, deadline)
        consumer.assign([Position(*place, OFFSET_BEGINNING)])
        while max(found, default=-1) + 1 < end:
            if time.monotonic() > deadline:
                raise Wrong(f"{place}: read up to {max(found, default=-1)}, the end is {end}")
            for message in consumer.consume(1000, 0.1):
                if _is_message(message):
                    found[int(message.offset() or 0)] = label_of(message.value())
    finally:
        consumer.close()
    return found


def _end_of(consumer: Consumer, place: TopicPartition, at_least: int, deadline: float) -> int:
    """Where the partition ends. One that ends sooner than it should may just not have settled."""
    while True:
        end = -1
        try:
            _, end = consumer.get_watermark_offsets(Position(*place), timeout=3)
        except KafkaException as problem:
            if time.monotonic() > deadline:
                raise Wrong(f"{place}: nobody says where it ends: {problem}") from problem
        if end >= at_least:
            return int(end)
        if time.monotonic() > deadline:
            raise Wrong(f"{place}: ends at {end}, and {at_least} was promised")
        time.sleep(0.05)


def _consumer(bootstrap: str, group: str, **more: object) -> Consumer:
    return Consumer(
        {
            **IMPATIENT,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            # A reader's place that is gone is a promise broken, and not to be skipped.
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "check.crcs": True,
            **{key.replace("_", ".") if key != "error_cb" else key: v for key, v in more.items()},
        }
    )


def _is_message(message: Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.code() not in PASSING and not error.retriable():
        raise Wrong(f"a reader of {message.topic()} [{message.partition()}] got {error}")
    return False
