"""The partitions that a broker holds, and the writes to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from moldau.broker.node import Node
from moldau.broker.partitions.coordinators import MarkerWriter, Verifier
from moldau.broker.partitions.flusher import Flusher
from moldau.broker.partitions.large_writes import LARGE, LargeWrites
from moldau.broker.partitions.open_transaction import OpenTransaction
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.refused_writes import RefusedWrites
from moldau.cluster.state.topics import Topic
from moldau.log.config import LogConfig
from moldau.log.errors import StorageError
from moldau.log.log import Log
from moldau.records.batch import BatchError
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error
from moldau.wire.primitives import TopicKey

Refusal = tuple[Error, str | None]

logger = logging.getLogger("moldau.broker")


class StagedWrite(Protocol):
    """A request whose batches are staged, and written by the next `commit`."""

    def settle(
        self,
        loop: asyncio.AbstractEventLoop,
        failed: dict[Partition, StorageError],
        refused: RefusedWrites,
    ) -> None:
        """Answer after the commit, or begin to wait."""


class Door(Protocol):
    """Compares records with the schemas that they name, somewhere off the loop."""

    async def check(
        self,
        at: TopicPartition,
        batch: memoryview | bytearray,
        config: LogConfig,
        transaction: OpenTransaction | None,
    ) -> memoryview | bytearray | BatchError | Refusal:
        """Return what to append of a batch, or why nothing of it is taken.

        If it is less than the whole batch, the rest is written elsewhere in the same transaction.
        """
        ...


class Partitions(dict[TopicPartition, Partition]):
    """By topic and index, what this broker holds, in whatever role. Event loop only.

    `checks_records` is whether any topic has had its records looked into; most brokers have none.
    A lookup by time or a check of records may decompress 128 MB, so only a few have `lookups`.
    Produce requests of more bytes than `prepares_above` may have to wait before they are handled:
    large ones, and all while records are looked into or partitions held. Without a `verifier` no
    transactional write is taken; `marker_writers` are the owners, by topic, of internal topics that
    transactions write to. Without a `door`, topics that want their records checked against schemas
    take none.
    """

    __slots__ = (
        "_dirty", "_loop", "checks_records", "door", "flusher", "id", "large_writes", "lookups",
        "marker_writers", "node", "prepares_above", "refused_writes", "state", "verifier",
    )  # fmt: skip

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self.id = node.id
        self.state = node.state
        self.checks_records = False
        self.prepares_above = LARGE
        self.large_writes = LargeWrites(self, self.reconsider)
        self.lookups = asyncio.Semaphore(2)
        self.refused_writes = RefusedWrites()
        self.verifier: Verifier | None = None
        self.door: Door | None = None
        self.marker_writers: dict[str, MarkerWriter] = {}
        self._loop = node.loop
        self._dirty: list[Partition] = []
        self.flusher = Flusher(node.loop)

    def open(self, topic: Topic, index: int, log: Log) -> Partition:
        """Hold the partition of this log, in no role yet."""
        lag_s = self.node.settings.replica_lag_time_max_ms / 1000
        partition = self[topic.name, index] = Partition(
            topic.name, topic.id, index, log, self.id, self._dirty, self.flusher, lag_s
        )
        return partition

    def reconsider(self) -> None:
        """Bring `prepares_above` in line with what there is to wait for."""
        is_any = self.checks_records or self.large_writes.held
        self.prepares_above = -1 if is_any else LARGE

    async def close(self) -> None:
        """Return when no flush is running."""
        await self.flusher.close()

    def topic_name(self, key: TopicKey) -> str:
        """Return the name that a request means by a name or an id; empty for an id that is not
        known."""
        if isinstance(key, str):
            return key
        topic = self.state.topics_by_id.get(key)
        return "" if topic is None else topic.name

    def commit(self, staged: Iterable[StagedWrite]) -> None:
        """Write all staged appends, settle their answers, and wake those who waited for them."""
        failed: dict[Partition, StorageError] = {}
        dirty = self._dirty.copy()
        self._dirty.clear()
        for partition in dirty:
            error = partition.commit()
            if error is not None:
                failed[partition] = error
                logger.error("append to %s-%d failed: %s", partition.topic, partition.index, error)
        loop, refused = self._loop, self.refused_writes
        for response in staged:
            response.settle(loop, failed, refused)
        for partition in dirty:
            partition.announce()
