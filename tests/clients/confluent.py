"""confluent-kafka: librdkafka, a C library of its own lineage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Polled

from tests.clients.client import (
    WITHIN_S,
    Acks,
    Codec,
    Headers,
    Message,
    Received,
    Start,
)

LARGEST_MESSAGE = 10_000_000


class DeliveryFailed(Exception):
    """The first error that a delivery report carried."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.code = error.code()


class ConfluentReader:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._pending: list[Received] = []
        self._position: int | None = None

    def position(self) -> int:
        """Reaching the end is an event that has the offset, so that is what is waited for."""
        deadline = time.monotonic() + WITHIN_S
        while self._position is None:
            self._poll(1, deadline)
        return self._position

    def read(self, count: int) -> list[Received]:
        deadline = time.monotonic() + WITHIN_S
        while len(self._pending) < count:
            self._poll(count - len(self._pending), deadline)
        taken, self._pending = self._pending[:count], self._pending[count:]
        return taken

    def _poll(self, count: int, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(self._pending)} messages came within {WITHIN_S:g} s")
        for polled in self._consumer.consume(count, timeout=0.1):
            error = polled.error()
            if error is None:
                self._pending.append(received(polled))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._position = polled.offset()
            else:
                raise AssertionError(str(error))


class ConfluentClient:
    sends_null_headers = True
    sends_null_key_and_value = True

    def __init__(self, bootstrap: str, security: Mapping[str, Any] | None = None) -> None:
        self.bootstrap = bootstrap
        self._security = dict(security or {})

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": LARGEST_MESSAGE,
                "message.timeout.ms": int(WITHIN_S * 1000),
                **self._security,
            }
        )
        return send(producer, topic, messages, partition)

    @contextmanager
    def reader(
        self, topic: str, start: Start = "beginning", *, partition: int = 0
    ) -> Iterator[ConfluentReader]:
        consumer = self._consumer()
        offset = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}.get(str(start), start)
        assert isinstance(offset, int)
        try:
            # Who leads must be known before, or librdkafka looks for the start half a second later.
            consumer.list_topics(topic, timeout=WITHIN_S)
            consumer.assign([TopicPartition(topic, partition, offset)])
            yield ConfluentReader(consumer)
        finally:
            consumer.close()

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            found = consumer.get_watermark_offsets(TopicPartition(topic, partition), WITHIN_S)
        finally:
            consumer.close()
        assert found is not None
        return found

    def offsets_at(self, topic: str, *times_ms: int) -> dict[int, int | None]:
        consumer = self._consumer()
        offsets: dict[int, int | None] = {}
        try:
            for time_ms in times_ms:
                (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], WITHIN_S)
                assert found.error is None
                offsets[time_ms] = found.offset if found.offset >= 0 else None
        finally:
            consumer.close()
        return offsets

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                **self._security,
            }
        )
        if "oauth_cb" in self._security:
            # It asks for a token only while it is polled, and without one connects to nobody.
            consumer.poll(0.1)
        return consumer


def send(
    producer: Producer, topic: str, messages: Sequence[Message], partition: int = 0
) -> list[int]:
    """Sends all and waits; the offsets in the order of the messages."""
    offsets: dict[int, int] = {}
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, polled: Polled, number: int) -> None:
        if error is not None:
            errors.append(error)
        offset = polled.offset()
        offsets[number] = -1 if offset is None else offset

    for number, message in enumerate(messages):
        producer.produce(
            topic,
            value=message.value,
            key=message.key,
            headers=list(message.headers),
            timestamp=message.timestamp_ms,
            partition=partition,
            on_delivery=partial(report, number=number),
        )
    assert producer.flush(WITHIN_S) == 0
    if errors:
        raise DeliveryFailed(errors[0])
    return [offsets[number] for number in range(len(messages))]


def received(polled: Polled) -> Received:
    kind, timestamp_ms = polled.timestamp()
    offset, value, key = polled.offset(), polled.value(), polled.key()
    assert offset is not None
    # Typed for sending too, where a header may be text; what comes back is bytes.
    headers = cast(Headers, tuple(polled.headers() or ()))
    message = Message(value=value, key=key, headers=headers, timestamp_ms=timestamp_ms)
    return Received(offset, message, kind == TIMESTAMP_LOG_APPEND_TIME)
