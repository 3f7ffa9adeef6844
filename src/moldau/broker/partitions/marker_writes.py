"""Marker writes: the ends of transactions on their way into partitions, and fences of their
producers. Event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from time import time_ns

from moldau.broker.errors import code_and_message
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.refused_writes import RefusedWrites
from moldau.log.errors import LogError, StorageError
from moldau.log.fences import Fence, batch_of
from moldau.log.markers import TransactionEnd
from moldau.records.batch import BatchError
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

# The sender of markers looks for the partition's leader again, and knows none of these.
_AS_NOT_LEADER = frozenset(
    (
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
    )
)


class MarkerWrites:
    """Markers that are written together, each answered once every in-sync replica has it.

    `errors` has the outcome for each (producer id, partition) that is known so far. A partition of
    an internal topic whose owner keeps transactions (`Partitions.marker_writers`) is left to it.
    """

    def __init__(self, partitions: Partitions) -> None:
        self.errors: dict[tuple[int, TopicPartition], Error] = {}
        self._partitions = partitions
        # The offset that the high watermark must reach, by what waits for it.
        self._waiting: dict[tuple[int, TopicPartition], tuple[Partition, int, int]] = {}
        self._delegated: set[tuple[int, TopicPartition]] = set()
        # An owner may answer at once, before the markers behind its own are appended.
        self._has_begun = False
        self._settled = asyncio.Event()

    async def write(
        self,
        ends: Iterable[tuple[TransactionEnd | Fence, Iterable[TopicPartition]]],
        timeout_s: float,
    ) -> None:
        """Append all of them, and return when `errors` is complete."""
        for end, places in ends:
            for place in places:
                self._begin(end, place)
        self._has_begun = True
        self._partitions.commit([self])
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError:
            for key in (*self._waiting, *self._delegated):
                self.errors[key] = Error.REQUEST_TIMED_OUT
        finally:
            for waited, _, _ in self._waiting.values():
                waited.unwait(self)

    def _begin(self, end: TransactionEnd | Fence, place: TopicPartition) -> None:
        key = (end.producer_id, place)
        partition = self._partitions.get(place)
        if partition is None:
            self.errors[key] = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif not partition.is_leader:
            self.errors[key] = Error.NOT_LEADER_OR_FOLLOWER
        elif len(partition.isr) < partition.min_isr:
            self.errors[key] = Error.NOT_ENOUGH_REPLICAS
        elif (
            not isinstance(end, Fence)
            and (writer := self._partitions.marker_writers.get(place[0])) is not None
        ):
            self._delegated.add(key)
            writer.write_marker(partition, end, partial(self._delegate_done, key))
        else:
            try:
                now_ms = time_ns() // 1_000_000
                if not isinstance(end, Fence):
                    partition.append_marker(end, now_ms)
                elif (batch := batch_of(partition.log, end)) is not None:
                    partition.append_unsequenced(batch, now_ms)
            except (BatchError, LogError) as error:
                if isinstance(error, StorageError):
                    partition.log.report(error)
                self.errors[key] = code_and_message(error)[0]
                return
            self._waiting[key] = (partition, partition.log.log_end, partition.leader_epoch)

    def settle(
        self,
        loop: asyncio.AbstractEventLoop,
        failed: dict[Partition, StorageError],
        refused: RefusedWrites,
    ) -> None:
        """Wait, after the commit, for the replicas."""
        for key, (waited, _, _) in list(self._waiting.items()):
            if waited in failed:
                del self._waiting[key]
                self.errors[key] = code_and_message(failed[waited])[0]
            else:
                waited.wait(self)
                waited.ask_flush()
        self.notify()

    def notify(self) -> None:
        """A high watermark moved, or a partition changed hands."""
        for key, (waited, needed, epoch) in list(self._waiting.items()):
            error = _outcome(waited, needed, epoch)
            if error is not None:
                del self._waiting[key]
                waited.unwait(self)
                self.errors[key] = error
        self._check()

    def _delegate_done(self, key: tuple[int, TopicPartition], error: Error) -> None:
        if key in self._delegated:
            self._delegated.discard(key)
            self.errors[key] = Error.NOT_LEADER_OR_FOLLOWER if error in _AS_NOT_LEADER else error
            self._check()

    def _check(self) -> None:
        if self._has_begun and not self._waiting and not self._delegated:
            self._settled.set()


def _outcome(partition: Partition, needed: int, epoch: int) -> Error | None:
    """Return what became of a marker that lies before `needed`; None while that is open."""
    if not partition.is_leader or partition.leader_epoch != epoch:
        return Error.NOT_LEADER_OR_FOLLOWER
    if partition.log.high_watermark >= needed:
        return Error.NONE
    if partition.log.offline is not None:
        return code_and_message(partition.log.offline)[0]
    if partition.in_sync is not None and len(partition.isr) < partition.min_isr:
        return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return None
