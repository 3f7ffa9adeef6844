"""Deliveries: what became of a sent message.

librdkafka calls a delivery back from whichever thread polls it. `Delivery` is that callback itself,
so that a result costs one object per message.

A set's result rests on reference counts instead: its report is held by librdkafka once per message
and by nobody else, so that its deletion says that the last message is through. With reports of
failures only, a set of thousands costs not one call into Python.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Self

import msgspec

from moldau.client.errors import DeliveryFailed, words_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as RawMessage

    from moldau.client.producer.reports import DeliveryReports

log = logging.getLogger("moldau.client")


class Outcome(msgspec.Struct, eq=False, weakref=True):
    """Something that will be done, one way or the other; any thread or event loop may wait for it.

    A failure that nobody asks about is not lost: when the result goes away unread, the producer
    gets it, for its error handler or its next `flush`.
    """

    reports: DeliveryReports
    topic: str
    done: bool = False
    failure: DeliveryFailed | None = None
    waiters: list[Callable[[], None]] | None = None
    unread: Any = None

    def result(self, timeout: float | None = None) -> Self:
        """Wait until it is written, and return itself; raises `DeliveryFailed` or TimeoutError."""
        if not self.done:
            self._wait(timeout)
        if self.failure is not None:
            self._read()
            raise self.failure
        return self

    def exception(self, timeout: float | None = None) -> DeliveryFailed | None:
        """Wait as `result` does, and return the failure instead of raising it."""
        if not self.done:
            self._wait(timeout)
        self._read()
        return self.failure

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call back when it is done, from the thread that learns of it; at once if it is."""

        def call() -> None:
            try:
                callback(self)
            except Exception:
                log.exception("a delivery callback failed on %r", self)

        self._call_when_done(call)

    def __await__(self) -> Generator[Any, None, Self]:
        if not self.done:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self._call_when_done(lambda: _resolve(loop, future))
            with self.reports.awaited():
                yield from future
        return self.result(0)

    def _wait(self, timeout: float | None) -> None:
        written = threading.Lock()
        written.acquire()
        self._call_when_done(written.release)
        with self.reports.awaited():
            if not written.acquire(timeout=-1 if timeout is None else timeout):
                raise TimeoutError(f"not delivered to {self.topic} within {timeout:g} s")

    def _call_when_done(self, callback: Callable[[], None]) -> None:
        waiters = self.waiters
        if waiters is None:
            self.waiters = waiters = []
        waiters.append(callback)
        if self.done:
            self._wake()

    def _finish(self) -> None:
        self.done = True
        if self.failure is not None:
            self.unread = weakref.finalize(self, self.reports.unclaimed, self.failure)
        if self.waiters:
            self._wake()

    def _wake(self) -> None:
        waiters = self.waiters
        while waiters:
            # Popped one by one: two threads may be here, and each callback is to be called once.
            try:
                callback = waiters.pop()
            except IndexError:
                return
            callback()

    def _read(self) -> None:
        if self.unread is not None:
            self.unread.detach()


class Delivery(Outcome, eq=False, weakref=True):
    """The result of one message: where it was written, once it is."""

    partition: int = -1
    offset: int = -1
    timestamp: int = -1

    def __call__(self, error: KafkaError | None, message: RawMessage) -> None:
        if error is None:
            self.partition = message.partition()  # type: ignore[assignment]
            self.offset = message.offset()  # type: ignore[assignment]
            self.timestamp = message.timestamp()[1]
        else:
            self.failure = failure_of(error, message)
        self.done = True
        if self.waiters is not None or error is not None:
            self._finish()

    def __repr__(self) -> str:
        if not self.done:
            return f"<delivery to {self.topic}: under way>"
        if self.failure is not None:
            return f"<delivery to {self.topic}: {self.failure}>"
        return f"<delivery to {self.topic} [{self.partition}] at {self.offset}>"


class SetDelivery(Outcome, eq=False, weakref=True):
    """The result of a `MessageSet`: how many were written, and what became of the others."""

    count: int = 0
    failures: list[DeliveryFailed] = msgspec.field(default_factory=list)

    @property
    def written(self) -> int:
        """How many messages of a finished set are in the log."""
        return self.count - len(self.failures)

    def end(self) -> None:
        if self.failures:
            self.failure = self.failures[0]
            self.failure.others = tuple(self.failures[1:])
        self._finish()

    def __repr__(self) -> str:
        state = f"{self.written} written" if self.done else "under way"
        return f"<delivery of {self.count} messages to {self.topic}: {state}>"


class SetReport:
    """The callback of every message of a set; the set is done when librdkafka forgets it."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: SetDelivery) -> None:
        self._delivery = delivery

    def __call__(self, error: KafkaError | None, message: RawMessage) -> None:
        if error is not None:
            self._delivery.failures.append(failure_of(error, message))

    def __del__(self) -> None:
        self._delivery.end()


class FailureReport:
    """The callback of fire-and-forget messages: failures go to the producer's error handler."""

    __slots__ = ("_reports",)

    def __init__(self, reports: DeliveryReports) -> None:
        self._reports = reports

    def __call__(self, error: KafkaError | None, message: RawMessage) -> None:
        if error is not None:
            self._reports.unclaimed(failure_of(error, message))


def failure_of(error: KafkaError, message: RawMessage) -> DeliveryFailed:
    topic, partition = message.topic() or "", message.partition()
    place = f"{topic} [{partition}]" if partition is not None and partition >= 0 else topic
    return DeliveryFailed(
        f"a message was not written to {place}: {words_of(error)}",
        error,
        topic=topic,
        partition=partition,
        key=message.key(),
        value=message.value(),
    )


def _resolve(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    try:
        loop.call_soon_threadsafe(resolve)
    except RuntimeError:
        # The loop is closed: nobody waits there any more, and the outcome stays readable.
        return
