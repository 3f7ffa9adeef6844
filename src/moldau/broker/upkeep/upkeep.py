"""Upkeep: what a broker does on the side: retention, rolling, checkpoints, idle connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from moldau.broker.net.connections import Connections
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.refused_writes import ROUND_MS
from moldau.broker.partitions.replicas import Replicas
from moldau.broker.slices import Slices
from moldau.broker.upkeep.cleaner import Cleaner
from moldau.log.errors import StorageError
from moldau.log.retention import delete_expired, roll_if_due

logger = logging.getLogger("moldau.broker")

# A connection that has been quiet this long gives its large buffer back.
_QUIET_MS = 10_000
# How many logs are looked after before the loop serves others again.
_LOGS_AT_A_TIME = 50
# A cleaner told to wait for nothing still lets others have the processor.
_LEAST_BACKOFF_MS = 5


class Upkeep:
    """The background rounds of one broker, each at its own pace, until `stop`."""

    def __init__(
        self, partitions: Partitions, replicas: Replicas, connections: Connections[Any]
    ) -> None:
        self._partitions = partitions
        self._node = partitions.node
        self._replicas = replicas
        self._connections = connections
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._cleaner = Cleaner(partitions)

    def open(self) -> None:
        """Load what the last process of this broker saved about its logs."""
        self._cleaner.open()

    def start(self) -> None:
        settings = self._node.settings
        checkpoint_ms = settings.log_flush_offset_checkpoint_interval_ms
        retention_ms = settings.log_retention_check_interval_ms
        self._begin("retention", self.delete_expired, lambda: retention_ms)
        self._begin("checkpoint", self.checkpoint, lambda: checkpoint_ms)
        self._begin("compaction", self._cleaner.clean, self._cleaner_backoff_ms)
        self._begin("connections", self.tend_connections, lambda: _QUIET_MS // 2)
        self._begin("refused writes", self.forget_refusals, lambda: ROUND_MS)

    def _cleaner_backoff_ms(self) -> int:
        """Asked anew each time, since it may be changed while the broker runs."""
        return max(self._node.settings.log_cleaner_backoff_ms, _LEAST_BACKOFF_MS)

    async def stop(self) -> None:
        """Let a running round end: its thread would keep writing while the logs close."""
        self._stopping.set()
        self._cleaner.stop()
        await asyncio.gather(*self._tasks)

    def _begin(
        self, name: str, work: Callable[[], Awaitable[None]], interval_ms: Callable[[], int]
    ) -> None:
        self._tasks.append(self._node.loop.create_task(self._repeat(name, work, interval_ms)))

    async def _repeat(
        self, name: str, work: Callable[[], Awaitable[None]], interval_ms: Callable[[], int]
    ) -> None:
        while not self._stopping.is_set():
            try:
                await asyncio.wait_for(self._stopping.wait(), interval_ms() / 1000)
            except TimeoutError:
                pass
            else:
                return
            try:
                await work()
            except Exception:
                logger.exception("the %s round failed; trying again later", name)

    async def delete_expired(self) -> None:
        """Close old segments, delete what retention no longer keeps, and forget idle producers.

        The room that this makes may be what a partition is waiting for.
        """
        node, refused = self._node, self._partitions.refused_writes
        self._replicas.complete()
        slices = Slices()
        for count, partition in enumerate(list(self._partitions.values()), 1):
            log = partition.log
            try:
                delete_expired(log, node.now_ms())
                roll_if_due(log, node.now_ms())
                idle_ms = node.settings.producer_id_expiration_ms
                forgotten = log.producers.expire(node.now_ms(), idle_ms)
                if refused.topics:
                    refused.producers_forgotten(partition, forgotten)
            except StorageError as error:
                # The others must not wait for this one's disk.
                logger.error("retention of %s-%d failed: %s", log.topic, log.partition, error)
            if count % _LOGS_AT_A_TIME == 0:
                await slices.rest()

    async def checkpoint(self) -> None:
        """Flush logs on a thread and save the recovery points."""
        for count, partition in enumerate(list(self._partitions.values()), 1):
            if self._stopping.is_set():
                return
            await partition.force()
            if count % _LOGS_AT_A_TIME == 0:
                await asyncio.sleep(0)
        await asyncio.to_thread(self._node.logs.prepare_checkpoint())
        await self._cleaner.checkpoint()

    async def forget_refusals(self) -> None:
        """Forget refused writes that nobody has sent again."""
        self._partitions.refused_writes.end_round()

    async def tend_connections(self) -> None:
        """End connections that have been idle too long; shrinks the buffers of quiet ones."""
        now = self._node.loop.time()
        longest = self._node.settings.connections_max_idle_ms / 1000
        for connection in self._connections:
            quiet = now - connection.active_at
            if quiet > longest:
                logger.info(
                    "closing connection from %s: idle for %.0f s", connection.context.client, quiet
                )
                connection.finish()
            elif quiet > _QUIET_MS / 1000:
                connection.input.shrink()
