"""The queue for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Self, cast

from moldau.client.queue.job import AsyncJob, Outcome
from moldau.client.queue.queue import POLL_S, Queue


class AsyncQueue:
    """A `Queue` for `async for`; arguments and settings are those of a `Queue`.

        async with AsyncQueue("jobs", group="workers") as queue:
            async for message in queue:
                await work(message.value)
                message.done()

    Taking messages happens in a thread. Of a renewable queue, it is `await message.renew()`. An
    iteration waits for more instead of ending; leave it, cancel it, or `stop`.
    """

    def __init__(self, *topics: str, group: str, **settings: Any) -> None:
        self._queue = Queue(*topics, group=group, **settings)
        self._queue._job_type = AsyncJob
        # One call at a time: what runs in a thread outlives the task that was cancelled.
        self._turn = asyncio.Lock()

    @property
    def group(self) -> str:
        return self._queue.group

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *problem: object) -> None:
        await self._close(Outcome.DONE if kind is None else Outcome.RETRY)

    def __aiter__(self) -> AsyncIterator[AsyncJob]:
        return self.messages()

    async def messages(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[AsyncJob]:
        """Messages as they come; with a timeout, until none has come for so many seconds."""
        queue = self._queue
        queue._stopped.clear()
        last = time.monotonic()
        while not queue._stopped.is_set():
            job = queue._take()
            if job is not None:
                yield cast(AsyncJob, job)
                last = time.monotonic()
                continue
            wait_s = POLL_S
            if timeout is not None:
                wait_s = min(wait_s, last + timeout - time.monotonic())
                if wait_s <= 0:
                    return
            await self._call(queue.fetch, wait_s)

    async def take(
        self,
        timeout: float = 0.0,  # noqa: ASYNC109
    ) -> AsyncJob | None:
        """Return the next message, or None when none comes within the timeout."""
        async for job in self.messages(timeout):
            return job
        return None

    def stop(self) -> None:
        """End the iteration once the message in hand is done. From any thread."""
        self._queue.stop()

    async def flush(self) -> None:
        """Tell the broker what became of the messages so far."""
        await self._call(self._queue.flush)

    async def close(self) -> None:
        """Settle what is in hand as done, and leave the group."""
        await self._close(Outcome.DONE)

    async def _close(self, otherwise: Outcome) -> None:
        self._queue.stop()
        async with self._turn:
            await asyncio.to_thread(self._queue._close, otherwise)

    async def _call(self, function: Any, *arguments: Any) -> Any:
        async with self._turn:
            work = asyncio.create_task(asyncio.to_thread(function, *arguments))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise
