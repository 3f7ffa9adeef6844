"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.fetcher import PartitionsHandler
from moldau.client.message import ConsumedMessage, Timestamp
from moldau.topic_partition import TopicPartition


class AsyncConsumer:
    """A `Consumer` for `async for`; arguments and settings are those of a `Consumer`.

        async with AsyncConsumer(group="baristas") as consumer:
            await consumer.subscribe("orders")
            async for message in consumer:
                ...

    Fetching happens in a thread; between batches, which hold at most a thousand messages, the loop
    gets its turn. An iteration waits for more instead of ending; leave it, cancel it, or `stop`.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        group: str | None = None,
        start: str = "earliest",
        **settings: Any,
    ) -> None:
        self._consumer = Consumer(bootstrap, group, start, **settings)
        # One call at a time: what runs in a thread outlives the task that was cancelled.
        self._turn = asyncio.Lock()
        self._left: Iterator[ConsumedMessage] = iter(())

    @property
    def below(self) -> Consumer:
        """The consumer that does the work, in threads."""
        return self._consumer

    @property
    def group(self) -> str | None:
        return self._consumer.group

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *problem: object) -> None:
        cancelled = kind is not None
        self._consumer.stop()
        async with self._turn:
            await asyncio.to_thread(self._consumer._close, not cancelled)

    async def subscribe(
        self,
        *topics: str,
        pattern: str | None = None,
        on_assign: PartitionsHandler | None = None,
        on_revoke: PartitionsHandler | None = None,
    ) -> None:
        """As `Consumer.subscribe`; the handlers are called from another thread."""
        await self._call(
            self._consumer.subscribe,
            *topics,
            pattern=pattern,
            on_assign=on_assign,
            on_revoke=on_revoke,
        )

    async def assign(self, *partitions: Any) -> None:
        await self._call(self._consumer.assign, *partitions)

    def assignment(self) -> list[TopicPartition]:
        return self._consumer.assignment()

    def __aiter__(self) -> AsyncIterator[ConsumedMessage]:
        return self.messages()

    async def messages(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[ConsumedMessage]:
        """Messages as they come; with a timeout, for that many seconds in all."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._consumer._check_open()
        self._consumer._stopped.clear()
        while not self._consumer._stopped.is_set():
            for message in self._left:
                yield message
                if deadline is not None and time.monotonic() >= deadline:
                    return
            if deadline is not None and time.monotonic() >= deadline:
                return
            self._left = await self._fetch(deadline)

    async def poll(
        self,
        timeout: float = 0.0,  # noqa: ASYNC109
    ) -> ConsumedMessage | None:
        """Return the next message, or None when none comes within the timeout."""
        async for message in self.messages(timeout):
            return message
        return None

    def stop(self) -> None:
        """End the iteration once the message in hand is done. From any thread."""
        self._consumer.stop()

    async def commit(self, message: ConsumedMessage | None = None) -> None:
        await self._call(self._consumer.commit, message)

    async def committed(self, *partitions: Any) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = await self._call(
            self._consumer.committed, *partitions
        )
        return found

    def position(self) -> dict[TopicPartition, int]:
        return self._consumer.position()

    async def seek(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | str | None = None,
        time: Timestamp | None = None,
    ) -> None:
        await self._call(self._consumer.seek, topic, partition, offset=offset, time=time)

    def pause(self, *partitions: Any) -> None:
        self._consumer.pause(*partitions)

    def resume(self, *partitions: Any) -> None:
        self._consumer.resume(*partitions)

    async def close(self) -> None:
        self._consumer.stop()
        await self._call(self._consumer.close)

    async def _fetch(self, deadline: float | None) -> Iterator[ConsumedMessage]:
        # Fetched in short waits, so that a task that is cancelled leaves no thread behind that
        # would take messages from the next one.
        soon = time.monotonic() + 0.2
        if deadline is not None:
            soon = min(soon, deadline)
        messages: Iterator[ConsumedMessage] | None = await self._call(
            self._consumer._next_messages, soon
        )
        return iter(()) if messages is None else messages

    async def _call(self, function: Any, *arguments: Any, **more: Any) -> Any:
        async with self._turn:
            work = asyncio.create_task(asyncio.to_thread(function, *arguments, **more))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise
