"""The producer."""

from __future__ import annotations

import logging
import operator
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, Self, overload

import confluent_kafka

from moldau.client.connection import librdkafka_settings
from moldau.client.errors import ClientError, DeliveryFailed, QueueFull
from moldau.client.message import Headers, Message, MessageSet, ProducerRecord, Timestamp
from moldau.client.message import timestamp_ms as to_ms
from moldau.client.producer.delivery import Delivery, FailureReport, SetDelivery, SetReport
from moldau.client.producer.handles import Closed, Turning
from moldau.client.producer.partitioner import Partitioner
from moldau.client.producer.placement import partition_count
from moldau.client.producer.preparation import Preparation
from moldau.client.producer.refusal import forget_frames, refusal
from moldau.client.producer.reports import DeliveryReports, ErrorHandler
from moldau.client.producer.transaction import TRANSACTION_TIMEOUT_S, Transaction, failure

if TYPE_CHECKING:
    from moldau.client.consumer.consumer import Consumer

MAX_BLOCK_S = 60.0
# How long a producer that nobody closed may hold up the end of the program.
LAST_FLUSH_S = 10.0
_FULL_POLL_S = 0.05

_QUEUE_PROBLEMS = (BufferError, TypeError, AttributeError, confluent_kafka.KafkaException)

log = logging.getLogger("moldau.client")


class Producer:
    """Sends messages, in batches behind the scenes. Any thread may use it.

    `bootstrap` is `HOST:PORT[,...]`; without it `MOLDAU_BOOTSTRAP`, or 127.0.0.1:9092. Further
    settings are Kafka's, with underscores for dots (`linger_ms=20`) or as they are in a mapping
    (`settings={"linger.ms": 20}`); librdkafka takes them as they come.

    - `send` gives a result per message, or one for a `MessageSet`.
    - `post` gives none: failures go to `on_error`, and without one the next `flush` raises.
    - A full buffer makes a sender wait, `max_block_s` at most, then it raises `QueueFull`.
    - A failure that a result holds and nobody reads ends up where those of `post` do.

    At first, librdkafka is asked to report failures only, which is all that `post` and sets need
    and costs a third less. The first `send` of a single message waits for what is under way and
    turns to reports with offsets, for good; `offsets=True` does so from the start.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        key_serializer: Any = None,
        value_serializer: Any = None,
        partitioner: Partitioner | str | None = None,
        on_error: ErrorHandler | None = None,
        max_block_s: float = MAX_BLOCK_S,
        offsets: bool = False,
        **settings: Any,
    ) -> None:
        names_one = isinstance(partitioner, str)
        self._settings = librdkafka_settings(
            bootstrap,
            settings,
            defaults={"partitioner": partitioner if names_one else "murmur2_random"},
        )
        self._max_block_s = max_block_s
        self._offsets = offsets or "transactional.id" in self._settings
        self._reports = DeliveryReports(on_error)
        self._reports.handle = handle = self._connect()
        self._handle: confluent_kafka.Producer | Turning | Closed = handle
        own = None if isinstance(partitioner, str) else partitioner
        self._prepare = Preparation(key_serializer, value_serializer, own)
        self._prepares = bool(self._prepare)
        self._turning = threading.RLock()
        self._closed = False
        # Whether the brokers know this producer by its transactional id.
        self.is_registered = False
        self._unclosed = weakref.finalize(self, _abandon, self._reports)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return how many messages are under way."""
        return len(self._reports.handle)

    def __bool__(self) -> bool:
        return True

    @overload
    def send(self, topic: ProducerRecord) -> Delivery: ...

    @overload
    def send(self, topic: str, value: MessageSet) -> SetDelivery: ...

    @overload
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> Delivery: ...

    def send(
        self,
        topic: str | ProducerRecord,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> Delivery | SetDelivery:
        """Queue a message, or a set of them, and return the result to come."""
        kind = type(value)
        if kind is MessageSet and isinstance(topic, str):
            return self._send_set(topic, value)
        if kind is Message:
            _, key, partition, headers, timestamp = _parts(value)
            value = value.value
        elif not isinstance(topic, str):
            value, key, partition, headers, timestamp = _parts(topic)
        name = topic if isinstance(topic, str) else topic.topic
        if not self._offsets:
            self._turn_to_offsets()
        delivery = Delivery(self._reports, name)
        self._queue(name, value, key, partition, headers, timestamp, delivery)
        return delivery

    def post(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> None:
        """Queue a message and forget it; a failure goes to the error handler."""
        if self._prepares or headers is not None or timestamp is not None or partition is not None:
            self._queue(topic, value, key, partition, headers, timestamp, None)
            return
        try:
            self._handle.produce(topic, value, key)
        except BufferError:
            self._queue_when_room(topic, value, key, -1, 0, None, None)
        except confluent_kafka.KafkaException as problem:
            raise refusal(problem, topic, key, value) from None
        if self._reports.due:
            self._reports.serve()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is written or has failed.

        Raises TimeoutError with messages still under way, and `DeliveryFailed` for failures since
        the last flush that neither a result nor the error handler has told anybody about.
        """
        try:
            left = self._reports.handle.flush(-1 if timeout is None else timeout)
        except confluent_kafka.KafkaException as problem:
            raise failure("could not flush", problem.args[0]) from None
        self._reports.raise_unclaimed()
        if left:
            raise TimeoutError(f"{left} messages are still in flight after {timeout:g} s")

    def transaction(
        self, consumer: Consumer | None = None, *, timeout: float = TRANSACTION_TIMEOUT_S
    ) -> Transaction:
        """Return a `with` block whose messages are read together or never.

        The producer needs a `transactional_id`. Offsets of a consumer, if one is given, become part
        of it. Each step at the block's end may take as long as the timeout.
        """
        if "transactional.id" not in self._settings:
            raise ClientError("only a producer with a transactional_id has transactions")
        return Transaction(self, consumer, timeout)

    @property
    def handle(self) -> Any:
        """librdkafka's producer below this one."""
        return self._reports.handle

    def forget_failures(self) -> None:
        """Raise what a flush would raise about failures so far, and forget it."""
        self._reports.raise_unclaimed()

    def close(self, timeout: float | None = None) -> None:
        """Flush and let go. What is not written within the timeout fails, and `close` says so."""
        if self._closed:
            return
        self._closed = True
        self._unclosed.detach()
        handle = self._reports.handle
        try:
            # A producer that was fenced has nothing under way, and its user has been told.
            with suppress(confluent_kafka.KafkaException):
                if handle.flush(-1 if timeout is None else timeout):
                    handle.purge()
                    handle.flush(LAST_FLUSH_S)
            self._reports.raise_unclaimed()
        finally:
            self._reports.close()
            # Results outlive their producer, and must not keep librdkafka's threads alive.
            self._handle = self._reports.handle = Closed()

    def partitions(self, topic: str, timeout: float = 10.0) -> int:
        """Return how many partitions a topic has; a topic that brokers create by themselves is
        created."""
        return partition_count(self._reports.handle, topic, timeout)

    def _connect(self) -> confluent_kafka.Producer:
        return confluent_kafka.Producer(
            {
                "delivery.report.only.error": not self._offsets,
                "on_delivery": FailureReport(self._reports),
                **self._settings,
            }
        )

    def _turn_to_offsets(self) -> None:
        """Exchange the handle for one that reports offsets.

        Senders are held up until the old handle is empty, so that order is kept.
        """
        with self._turning:
            if self._offsets:
                return
            if self._closed:
                Closed().produce()
            self._handle = Turning(self._turning, lambda: self._handle)
            self._reports.handle.flush(-1)
            self._offsets = True
            self._reports.handle = self._handle = self._connect()

    def _queue(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp: Timestamp | None,
        report: Callable[..., None] | None,
    ) -> None:
        if self._prepares:
            key, value, partition, headers = self._prepare(
                self._reports.handle, topic, key, value, partition, headers
            )
        number = -1 if partition is None else partition
        ms = 0 if timestamp is None else to_ms(timestamp)
        try:
            if headers is None and not ms:
                self._handle.produce(topic, value, key, number, report)
            else:
                self._handle.produce(topic, value, key, number, report, None, ms, headers)
        except BufferError:
            self._queue_when_room(topic, value, key, number, ms, headers, report)
        except confluent_kafka.KafkaException as problem:
            raise refusal(problem, topic, key, value) from None
        if self._reports.due:
            self._reports.serve()

    def _queue_when_room(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        ms: int,
        headers: Headers | None,
        report: Callable[..., None] | None,
    ) -> None:
        deadline = time.monotonic() + self._max_block_s
        while True:
            self._reports.handle.poll(_FULL_POLL_S)
            try:
                self._handle.produce(topic, value, key, partition, report, None, ms, headers)
                return
            except BufferError:
                if time.monotonic() >= deadline:
                    raise QueueFull(
                        f"{len(self)} messages are in flight, and none were written for "
                        f"{self._max_block_s:g} s; queue.buffering.max.messages and "
                        "queue.buffering.max.kbytes set the size of the buffer"
                    ) from None

    def _send_set(self, topic: str, messages: MessageSet) -> SetDelivery:
        delivery = SetDelivery(self._reports, topic, count=len(messages))
        items = messages.messages
        if self._prepares:
            # All of them before any of them: a value that cannot be serialized stops the set.
            items = [self._prepared(topic, item) for item in items]
        report = SetReport(delivery)
        # Held for the whole set, so that the handle stays the same.
        with self._turning:
            rest = iter(items)
            while left := operator.length_hint(rest):
                produce: Callable[[str, Iterator[Any], SetReport], None] = self._produce_messages
                if type(items[-left]) is not Message:
                    produce = self._produce_values
                try:
                    produce(topic, rest, report)
                except _QUEUE_PROBLEMS as problem:
                    forget_frames(problem)
                    item = items[-operator.length_hint(rest) - 1]
                    failure = self._try_one(topic, item, report)
                    if failure is not None:
                        delivery.failures.append(failure)
        if self._reports.due:
            self._reports.serve()
        return delivery

    def _try_one(self, topic: str, item: Any, report: SetReport) -> DeliveryFailed | None:
        """Queue one message of a set once more, and return what is wrong with it."""
        value, key, *_ = _parts(item)
        try:
            self._queue_ready(topic, item, report)
        except confluent_kafka.KafkaException as problem:
            return refusal(problem, topic, key, value)
        except (QueueFull, TypeError) as problem:
            return refusal(problem, topic, key, value)
        return None

    def _produce_values(self, topic: str, values: Iterator[Any], report: SetReport) -> None:
        """Queue plain values, without a step of bytecode between one and the next.

        Raises TypeError at a `Message`, which the iterator has then given out.
        """
        produce = self._handle.produce
        deque(map(produce, repeat(topic), values, repeat(None), repeat(-1), repeat(report)), 0)

    def _produce_messages(self, topic: str, messages: Iterator[Any], report: SetReport) -> None:
        produce = self._handle.produce
        for item in messages:
            if item.partition is None and item.headers is None and item.timestamp is None:
                produce(topic, item.value, item.key, -1, report)
            else:
                self._queue_ready(topic, item, report)

    def _queue_ready(self, topic: str, item: Any, report: Callable[..., None]) -> None:
        value, key, partition, headers, timestamp = _parts(item)
        number = -1 if partition is None else partition
        ms = 0 if timestamp is None else to_ms(timestamp)
        try:
            self._handle.produce(topic, value, key, number, report, None, ms, headers)
        except BufferError:
            self._queue_when_room(topic, value, key, number, ms, headers, report)

    def _prepared(self, topic: str, item: Any) -> Message:
        value, key, partition, headers, timestamp = _parts(item)
        key, value, partition, headers = self._prepare(
            self._reports.handle, topic, key, value, partition, headers
        )
        return Message(value, key, partition, headers, timestamp)


def _parts(item: Any) -> tuple[Any, Any, int | None, Headers | None, Timestamp | None]:
    if isinstance(item, Message | ProducerRecord):
        return item.value, item.key, item.partition, item.headers, item.timestamp
    return item, None, None, None, None


def _abandon(reports: DeliveryReports) -> None:
    """The end of a producer that was never closed: what it holds is still sent."""
    left = reports.handle.flush(LAST_FLUSH_S)
    if left:
        log.error(
            "%d messages were lost: the producer was not closed before the program ended", left
        )
    reports.close()
