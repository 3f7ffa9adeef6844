"""Large writes: Produce requests of many megabytes, whose records a thread writes.

The partitions of such a request are held until it has been appended. Others who write to them wait,
as they would if the loop did the writing itself; all else is served meanwhile. A request holds all
of its partitions or none, so nobody waits for a partition while holding another. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import time_ns

from moldau.broker.partitions.partition import Partition
from moldau.broker.slices import Slices
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.log.prewriting import begin_prewrite
from moldau.log.segments.batch_file import Buffer
from moldau.log.segments.prewrite import WORTH_PREWRITING, Prewrite
from moldau.topic_partition import TopicPartition

# A Produce request of more is written by a thread, but for batches of less than is worth it.
LARGE = 4 << 20
# How many requests are written at the same time.
_THREADS = 2
# How many batches are given room before the loop serves others.
_AT_A_TIME = 16

Batches = list[tuple[TopicPartition, Buffer]]


class LargeWrites:
    """The partitions that are held, each with the event of their release.

    `on_change` is called when there are more of them, or fewer.
    """

    def __init__(
        self, partitions: Mapping[TopicPartition, Partition], on_change: Callable[[], None]
    ) -> None:
        self._partitions = partitions
        self._on_change = on_change
        self.held: dict[TopicPartition, asyncio.Event] = {}
        self._slots = asyncio.Semaphore(_THREADS)

    def release_of(self, batches: Batches) -> asyncio.Event | None:
        """Return the release that these batches have to wait for, if any."""
        return next((self.held[key] for key, _ in batches if key in self.held), None)

    async def wait(self, batches: Batches) -> None:
        """Return when nobody holds any partition of these batches."""
        while (release := self.release_of(batches)) is not None:
            await release.wait()

    async def write(self, batches: Batches) -> LargeWrite:
        """Have the batches written as far as a thread can; held until the `end`."""
        await self.wait(batches)
        write = LargeWrite(self, batches)
        try:
            await self._begin(write, batches)
            async with self._slots:
                await asyncio.to_thread(write.run)
        except BaseException:
            write.end()
            raise
        return write

    async def _begin(self, write: LargeWrite, batches: Batches) -> None:
        slices, now_ms = Slices(), time_ns() // 1_000_000
        for number, (key, batch) in enumerate(batches, 1):
            partition = self._partitions.get(key)
            if partition is None or not partition.is_leader or key[0] in INTERNAL_TOPICS:
                continue
            log = partition.log
            if WORTH_PREWRITING <= len(batch) <= log.config.max_message_bytes:
                write.add(begin_prewrite(log, batch, now_ms))
            if number % _AT_A_TIME == 0:
                await slices.rest()

    def hold(self, batches: Batches) -> asyncio.Event:
        """Have others wait for these partitions until `release`."""
        released = asyncio.Event()
        self.held.update((key, released) for key, _ in batches)
        self._on_change()
        return released

    def release(self, released: asyncio.Event) -> None:
        """Let those go on who waited."""
        self.held = {key: event for key, event in self.held.items() if event is not released}
        self._on_change()
        released.set()


class LargeWrite:
    """The batches of one request."""

    __slots__ = ("_prewrites", "_released", "_writes")

    def __init__(self, writes: LargeWrites, batches: Batches) -> None:
        self._writes = writes
        self._prewrites: list[Prewrite] = []
        self._released = writes.hold(batches)

    def add(self, prewrite: Prewrite | None) -> None:
        if prewrite is not None:
            self._prewrites.append(prewrite)

    def run(self) -> None:
        """Write the records. Any thread."""
        for prewrite in self._prewrites:
            prewrite.run()

    def end(self) -> None:
        """The batches have been appended, or never will be: let others write."""
        for prewrite in self._prewrites:
            prewrite.end()
        self._writes.release(self._released)
