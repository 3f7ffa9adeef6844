"""One partition on this broker: its log, its role, and who waits for it. Event loop only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from moldau.broker.flusher import Flusher
from moldau.log.config import LogConfig
from moldau.log.errors import StorageError
from moldau.log.log import Log
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.cluster.topics import PartitionState


class Waiter(Protocol):
    """Something that is told when a partition's high watermark has moved."""

    def notify(self) -> None: ...


class Partition:
    """A replica of a partition.

    Appends are staged in the log and entered in `dirty`, the broker's list of partitions to commit
    at the end of a receive. The high watermark moves on commit, or, where the topic has a flush
    policy, when what was committed is on disk.
    """

    __slots__ = (
        "_broker_id",
        "_dirty",
        "_flusher",
        "_is_dirty",
        "index",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        log: Log,
        broker_id: int,
        dirty: list[Partition],
        flusher: Flusher,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader = -1
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.is_leader = False
        # In the order of arrival; made on the first wait, since most partitions have none.
        self.waiters: dict[Waiter, None] | None = None
        self._broker_id = broker_id
        self._dirty = dirty
        self._flusher = flusher
        self._is_dirty = False

    def become(self, state: PartitionState) -> None:
        """Takes the role that the cluster gives this replica."""
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.isr = tuple(state.isr)
        self.is_leader = state.leader == self._broker_id
        if self.is_leader:
            self.log.epochs.assign(state.leader_epoch, self.log.log_end)
            self._advance_high_watermark()
            if self.log.flushed < self.log.log_end:
                self.ask_flush()

    def configure(self, config: LogConfig) -> None:
        """Takes the topic's settings as they are from now on."""
        self.log.config = config
        if self.is_leader:
            self._advance_high_watermark()
            self.ask_flush()
            self.wake()

    def append(self, batch: memoryview, now_ms: int) -> tuple[int, int]:
        """Stages a producer's batch; see `Log.append`."""
        result = self.log.append(batch, self.leader_epoch, now_ms)
        if not self._is_dirty:
            self._is_dirty = True
            self._dirty.append(self)
        return result

    def check_epoch(self, leader_epoch: int) -> Error:
        """KIP-320: whether a client's idea of the leader epoch (-1: none) is ours."""
        if leader_epoch in (-1, self.leader_epoch):
            return Error.NONE
        if leader_epoch < self.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        return Error.UNKNOWN_LEADER_EPOCH

    def commit(self) -> StorageError | None:
        """Writes what is staged and moves the high watermark; the error where the disk refuses."""
        self._is_dirty = False
        try:
            self.log.commit()
        except StorageError as error:
            return error
        if self.log.config.flushes:
            self._flusher.appended(self)
        self._advance_high_watermark()
        return None

    def ask_flush(self) -> None:
        """Somebody waits for what was just written: a flush policy need not take its time."""
        if self.log.config.flushes:
            self._flusher.flush(self)

    async def force(self) -> None:
        """Waits until what is written by now is on disk, or the disk has refused."""
        await self._flusher.force(self)

    def flushed(self) -> None:
        """More of the log is on disk."""
        self._advance_high_watermark()
        self.wake()

    def _advance_high_watermark(self) -> None:
        if self.isr == (self._broker_id,):
            log = self.log
            log.advance_high_watermark(log.flushed if log.config.flushes else log.log_end)

    def wait(self, waiter: Waiter) -> None:
        """Has `waiter` told of the next move of the high watermark, until `unwait`."""
        if self.waiters is None:
            self.waiters = {}
        self.waiters[waiter] = None

    def unwait(self, waiter: Waiter) -> None:
        if self.waiters is not None:
            self.waiters.pop(waiter, None)

    def wake(self) -> None:
        """Tells everyone who waits."""
        if self.waiters:
            for waiter in list(self.waiters):
                waiter.notify()
