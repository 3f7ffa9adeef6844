"""The producer for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, overload

from moldau.client.consumer.async_consumer import AsyncConsumer
from moldau.client.errors import QueueFull
from moldau.client.message import Headers, MessageSet, ProducerRecord, Timestamp
from moldau.client.producer.delivery import Delivery, SetDelivery
from moldau.client.producer.producer import MAX_BLOCK_S, Producer
from moldau.client.producer.transaction import Transaction

_FULL_WAIT_S = 0.01


class AsyncTransaction:
    """A `Transaction` whose waits are awaited."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def send_offsets(self, consumer: AsyncConsumer) -> None:
        await _in_thread(self._transaction.send_offsets, consumer.below)


class AsyncProducer:
    """A `Producer` whose waits are awaited: a full buffer holds up the task, never the loop.

    Made inside or outside of a loop; arguments and settings are those of a `Producer`.

        async with AsyncProducer() as producer:
            delivery = await producer.send("orders", b"2 coffees")

    `send` waits until the message is written. To have many under way, `enqueue` returns the
    delivery at once, to be awaited later.
    """

    def __init__(self, bootstrap: str | None = None, **settings: Any) -> None:
        self._max_block_s = settings.pop("max_block_s", MAX_BLOCK_S)
        settings.setdefault("offsets", True)
        self._producer = Producer(bootstrap, max_block_s=0.0, **settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    def __len__(self) -> int:
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    @overload
    async def send(self, topic: ProducerRecord) -> Delivery: ...

    @overload
    async def send(self, topic: str, value: MessageSet) -> SetDelivery: ...

    @overload
    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> Delivery: ...

    async def send(self, topic: Any, *message: Any, **more: Any) -> Any:
        """Send, and wait until it is written; raises `DeliveryFailed`."""
        return await (await self._enqueue(topic, *message, **more))

    async def enqueue(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> Delivery:
        """Wait for room in the buffer only, and return the delivery to come."""
        delivery: Delivery = await self._enqueue(topic, value, key, partition, headers, timestamp)
        return delivery

    async def post(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> None:
        """Wait for room in the buffer only; a failure goes to the error handler."""
        await self._when_room(self._producer.post, topic, value, key, partition, headers, timestamp)

    @asynccontextmanager
    async def transaction(
        self, consumer: AsyncConsumer | None = None, **more: Any
    ) -> AsyncIterator[AsyncTransaction]:
        """As `Producer.transaction`, for `async with`; takes an `AsyncConsumer`."""
        below = None if consumer is None else consumer.below
        transaction = self._producer.transaction(below, **more)
        await _in_thread(transaction.__enter__)
        try:
            yield AsyncTransaction(transaction)
        except BaseException as problem:
            await _in_thread(transaction.__exit__, type(problem), problem, None)
            raise
        await _in_thread(transaction.__exit__, None, None, None)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await asyncio.to_thread(self._producer.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await asyncio.to_thread(self._producer.close, timeout)

    async def _enqueue(self, topic: Any, *message: Any, **more: Any) -> Any:
        value = message[0] if message else more.get("value")
        if isinstance(value, MessageSet):
            # A set may be larger than the buffer, and blocks until all of it is queued.
            return await asyncio.to_thread(self._producer.send, topic, value)
        return await self._when_room(self._producer.send, topic, *message, **more)

    async def _when_room(self, put: Any, *message: Any, **more: Any) -> Any:
        deadline = time.monotonic() + self._max_block_s
        while True:
            try:
                return put(*message, **more)
            except QueueFull:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_FULL_WAIT_S)


async def _in_thread(step: Callable[..., Any], *arguments: Any) -> None:
    """Take a step of a transaction in a thread; once begun it is finished, cancelled or not."""
    work = asyncio.create_task(asyncio.to_thread(step, *arguments))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
