"""kafka-python: the protocol in pure Python."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.clients.client import (
    WITHIN_S,
    Acks,
    Codec,
    Message,
    Received,
    Start,
)

LARGEST_REQUEST = 10_000_000


class KafkaPythonReader:
    def __init__(self, consumer: Any, partition: Any) -> None:
        self._consumer = consumer
        self._partition = partition
        self._pending: list[Received] = []

    def position(self) -> int:
        position = self._consumer.position(self._partition, timeout_ms=int(WITHIN_S * 1000))
        assert isinstance(position, int)
        return position

    def read(self, count: int) -> list[Received]:
        deadline = time.monotonic() + WITHIN_S
        while len(self._pending) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(self._pending)} messages came within {WITHIN_S:g} s")
            for polled in self._consumer.poll(timeout_ms=100).values():
                self._pending.extend(map(received, polled))
        taken, self._pending = self._pending[:count], self._pending[count:]
        return taken


class KafkaPythonClient:
    sends_null_headers = False
    sends_null_key_and_value = False

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
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            max_request_size=LARGEST_REQUEST,
            linger_ms=5,
            retry_backoff_ms=10,
            **self._security,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            producer.flush(WITHIN_S)
            return [future.get(WITHIN_S).offset for future in sent]
        finally:
            producer.close(WITHIN_S)

    @contextmanager
    def reader(
        self, topic: str, start: Start = "beginning", *, partition: int = 0
    ) -> Iterator[KafkaPythonReader]:
        at = TopicPartition(topic, partition)
        consumer = self._consumer()
        try:
            consumer.assign([at])
            if start == "beginning":
                consumer.seek_to_beginning(at)
            elif start == "end":
                consumer.seek_to_end(at)
            else:
                consumer.seek(at, start)
            yield KafkaPythonReader(consumer, at)
        finally:
            consumer.close(autocommit=False)

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        at = TopicPartition(topic, partition)
        consumer = self._consumer()
        try:
            return consumer.beginning_offsets([at])[at], consumer.end_offsets([at])[at]
        finally:
            consumer.close(autocommit=False)

    def offsets_at(self, topic: str, *times_ms: int) -> dict[int, int | None]:
        at = TopicPartition(topic, 0)
        consumer = self._consumer()
        offsets: dict[int, int | None] = {}
        try:
            for time_ms in times_ms:
                found = consumer.offsets_for_times({at: time_ms})[at]
                offsets[time_ms] = None if found is None else found.offset
        finally:
            consumer.close(autocommit=False)
        return offsets

    def _consumer(self) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
            retry_backoff_ms=10,
            **self._security,
        )


def received(polled: Any) -> Received:
    message = Message(
        value=polled.value,
        key=polled.key,
        headers=tuple((name, content) for name, content in polled.headers),
        timestamp_ms=polled.timestamp,
    )
    return Received(polled.offset, message, polled.timestamp_type == 1)
