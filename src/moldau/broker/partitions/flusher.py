"""The flusher: forces partitions with a flush policy to disk, many writes at a time.

One fsync runs per partition. All batches that arrive meanwhile share the next one (group commit),
so the rate of acknowledged writes is a multiple of the disk's fsync rate. Event loop only; the
fsync itself runs on a thread.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from moldau.broker.metrics import Histogram
from moldau.log.errors import StorageError
from moldau.log.flushes.flush import Flush
from moldau.log.flushes.flushing import has_unforced_cut, prepare_flush
from moldau.log.log import Log
from moldau.settings import LONG_MAX

logger = logging.getLogger("moldau.broker")

# A count without a time would leave the last few messages waiting for ever.
_IMPLIED_MS = 1000
_THREADS = 4
# Flushes that are under way hold their files open, and to prepare one takes the loop's time.
_AT_A_TIME = 8 * _THREADS


class Flushed(Protocol):
    """A partition, as far as it is forced to disk."""

    topic: str
    index: int

    @property
    def log(self) -> Log: ...

    def flushed(self) -> None:
        """Take note that more of the log is on disk."""

    def wake(self) -> None:
        """Let everybody look again who waits for the partition."""


class Flusher:
    """The flushes that are due, under way, or asked for again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(_THREADS, "moldau-flush")
        self._due: dict[Flushed, asyncio.TimerHandle] = {}
        self._running: dict[Flushed, asyncio.Future[None]] = {}
        self._again: set[Flushed] = set()
        # Thousands of partitions may be forced at once.
        self._forces = asyncio.Semaphore(_AT_A_TIME)
        # How long the flushes took, waiting for a thread included.
        self.latency = Histogram()
        self._closed = False

    def appended(self, partition: Flushed) -> None:
        """Note a write that the policy will want on disk."""
        log = partition.log
        if log.log_end - log.flushed >= log.config.flush_messages:
            self.flush(partition)
        elif partition not in self._due:
            wait_ms = log.config.flush_ms
            if wait_ms == LONG_MAX:
                wait_ms = _IMPLIED_MS
            # The loop's clock takes no more than a few weeks.
            wait_s = min(wait_ms / 1000, 86_400.0)
            self._due[partition] = self._loop.call_later(wait_s, self.flush, partition)

    def flush(self, partition: Flushed) -> None:
        """Begin to force the partition to disk now, or as soon as the running fsync is done."""
        due = self._due.pop(partition, None)
        if due is not None:
            due.cancel()
        if self._closed:
            return
        if partition in self._running:
            self._again.add(partition)
            return
        try:
            flush = prepare_flush(partition.log)
        except StorageError as error:
            self._fail(partition, error)
            return
        if flush is None:
            return
        running = self._loop.run_in_executor(self._threads, flush.run)
        self._running[partition] = running
        running.add_done_callback(partial(self._finished, partition, flush, self._loop.time()))

    async def force(self, partition: Flushed) -> None:
        """Wait until everything written so far is on disk, whatever the policy, or the disk has
        refused.
        """
        log = partition.log
        async with self._forces:
            target = log.log_end
            # One that runs already may have begun too early, and then a second one is under way.
            for _ in range(2):
                self.flush(partition)
                running = self._running.get(partition)
                if running is None:
                    return
                await asyncio.wait([running])
                if log.flushed >= target and not has_unforced_cut(log):
                    return

    async def close(self) -> None:
        """Start no more flushes and wait for the running ones."""
        self._closed = True
        for due in self._due.values():
            due.cancel()
        self._due.clear()
        await asyncio.to_thread(self._threads.shutdown)

    def _finished(
        self, partition: Flushed, flush: Flush, began_at: float, running: asyncio.Future[None]
    ) -> None:
        self.latency.add(self._loop.time() - began_at)
        del self._running[partition]
        again = partition in self._again
        self._again.discard(partition)
        flush.done()
        error = running.exception()
        if isinstance(error, StorageError):
            if flush.lost_data:
                self._fail(partition, error)
            else:
                self._retry(partition, error)
            return
        partition.flushed()
        if again:
            self.flush(partition)

    def _retry(self, partition: Flushed, error: StorageError) -> None:
        """The batches are on disk, a small file beside them is not: there may be room soon."""
        logger.error("flushing %s-%d failed: %s", partition.topic, partition.index, error)
        partition.log.report(error)
        if not self._closed and partition not in self._due:
            wait_s = _IMPLIED_MS / 1000
            self._due[partition] = self._loop.call_later(wait_s, self.flush, partition)

    def _fail(self, partition: Flushed, error: StorageError) -> None:
        """A failed fsync is not tried again: the kernel may have dropped the pages (fsyncgate)."""
        logger.error(
            "%s-%d is offline: it could not be flushed to disk: %s",
            partition.topic, partition.index, error,
        )  # fmt: skip
        partition.log.fail(error)
        partition.wake()
