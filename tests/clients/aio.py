"""aiokafka: asyncio, with record batches in C."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.clients.client import (
    WITHIN_S,
    Acks,
    Codec,
    Message,
    Received,
    Start,
)

LARGEST_REQUEST = 10_000_000


class AioReader:
    def __init__(self, runner: asyncio.Runner, consumer: Any, partition: Any) -> None:
        self._runner = runner
        self._consumer = consumer
        self._partition = partition
        self._pending: list[Received] = []

    def position(self) -> int:
        position = self._consumer.position(self._partition)
        return int(self._runner.run(asyncio.wait_for(position, WITHIN_S)))

    def read(self, count: int) -> list[Received]:
        deadline = time.monotonic() + WITHIN_S
        while len(self._pending) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(self._pending)} messages came within {WITHIN_S:g} s")
            polled = self._runner.run(self._consumer.getmany(timeout_ms=100))
            for messages in polled.values():
                self._pending.extend(map(received, messages))
        taken, self._pending = self._pending[:count], self._pending[count:]
        return taken


class AioClient:
    sends_null_headers = True
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
        async def run() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                max_request_size=LARGEST_REQUEST,
                linger_ms=5,
                retry_backoff_ms=10,
                **self._security,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        partition=partition,
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in messages
                ]
                answers = await asyncio.wait_for(asyncio.gather(*sent), WITHIN_S)
            finally:
                await producer.stop()
            return [-1 if answer is None else answer.offset for answer in answers]

        return asyncio.run(run())

    @contextmanager
    def reader(
        self, topic: str, start: Start = "beginning", *, partition: int = 0
    ) -> Iterator[AioReader]:
        at = TopicPartition(topic, partition)

        async def begin() -> Any:
            consumer = self._consumer()
            await consumer.start()
            consumer.assign([at])
            if start == "beginning":
                await consumer.seek_to_beginning(at)
            elif start == "end":
                await consumer.seek_to_end(at)
            else:
                consumer.seek(at, start)
            return consumer

        with asyncio.Runner() as runner:
            consumer = runner.run(begin())
            try:
                yield AioReader(runner, consumer, at)
            finally:
                runner.run(consumer.stop())

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        at = TopicPartition(topic, partition)

        async def ask() -> tuple[int, int]:
            consumer = self._consumer()
            await consumer.start()
            try:
                first = await consumer.beginning_offsets([at])
                end = await consumer.end_offsets([at])
                return first[at], end[at]
            finally:
                await consumer.stop()

        return asyncio.run(ask())

    def offsets_at(self, topic: str, *times_ms: int) -> dict[int, int | None]:
        at = TopicPartition(topic, 0)

        async def ask() -> dict[int, int | None]:
            consumer = self._consumer()
            offsets: dict[int, int | None] = {}
            await consumer.start()
            try:
                for time_ms in times_ms:
                    found = (await consumer.offsets_for_times({at: time_ms}))[at]
                    offsets[time_ms] = None if found is None else found.offset
            finally:
                await consumer.stop()
            return offsets

        return asyncio.run(ask())

    def _consumer(self) -> Any:
        return AIOKafkaConsumer(
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
