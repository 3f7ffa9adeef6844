"""One partition on this broker: its log, its role, and who waits for it. Event loop only."""

from __future__ import annotations

import time
from collections.abc import Collection, Container
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from moldau.broker.partitions.flusher import Flusher
from moldau.broker.partitions.in_sync import InSync
from moldau.cluster.state.topics import minimum_isr
from moldau.log.config import LogConfig
from moldau.log.errors import StorageError
from moldau.log.log import Log
from moldau.log.markers import TransactionEnd, append_marker
from moldau.log.producers.verifications import Verification
from moldau.log.record_check import RecordCheck
from moldau.log.replica import append_replica
from moldau.log.retention import delete_records_before
from moldau.log.truncation import promises_more
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.cluster.state.topics import PartitionState


class Waiter(Protocol):
    """Something that is told when a partition's high watermark has moved."""

    def notify(self) -> None: ...


class FollowerSession(Protocol):
    """A session by which a follower copies this partition."""

    @property
    def replica(self) -> int: ...

    def log_grew(self, from_end: int) -> None:
        """There is more to send than at `from_end`."""

    def offsets_moved(self) -> None:
        """The high watermark or the log's start is another."""

    def role_changed(self) -> None:
        """Note that this broker no longer leads, or leads in another epoch."""

    def progress_lost(self) -> None:
        """Forget what the follower said about itself."""


class Partition:
    """A replica of a partition.

    Appends are staged in the log and entered in `dirty`, the broker's list of partitions to commit
    at the end of a receive. The high watermark moves on commit, or, where the topic has a flush
    policy, when what was committed is on disk, or, where there are other replicas, when every one
    that counts as in sync has it (`in_sync`, which only a leader with followers has), and at least
    `min_isr` of them do.

    `waiters` wait for the high watermark: consumers, writes with acks=all, journals.
    `follower_sessions` wait for the log's end.
    """

    __slots__ = (
        "_announced_end", "_announced_watermark", "_broker_id", "_dirty", "_flusher", "_is_dirty",
        "adding", "elr", "epoch_start", "follower_sessions", "in_sync",
        "index", "is_cut", "is_leader", "isr", "lag_s", "leader", "leader_epoch", "log", "min_isr",
        "replicas", "topic", "topic_id", "unclean_elections", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        log: Log,
        broker_id: int,
        dirty: list[Partition],
        flusher: Flusher,
        lag_s: float = 10.0,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader = -1
        self.leader_epoch = -1
        # Where the current leader epoch begins, while this broker leads.
        self.epoch_start = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.elr: tuple[int, ...] = ()
        # How many have to be in sync: min.insync.replicas, or all where those are fewer.
        self.min_isr = 1
        self.is_leader = False
        # The log was cut, and the checkpoint on disk still promises what was cut off: so may one of
        # the last life, if there was no room for another.
        self.is_cut = promises_more(log, log.log_end)
        self.in_sync: InSync | None = None
        # How long a follower may lag before it is out of sync.
        self.lag_s = lag_s
        # In the order of arrival; made on the first wait, since most partitions have none.
        self.waiters: dict[Waiter, None] | None = None
        # Made for the first follower. One may have several for a while: a session that it gave up
        # is not known for that, and must not take the place of the one that it goes on with.
        self.follower_sessions: dict[FollowerSession, None] | None = None
        self._announced_end = self._announced_watermark = 0
        self._broker_id = broker_id
        self._dirty = dirty
        self._flusher = flusher
        self._is_dirty = False
        self.unclean_elections = 0

    # Roles

    def become(self, state: PartitionState) -> None:
        """Take the role that the cluster gives this replica."""
        was = (self.is_leader, self.leader_epoch)
        is_new_epoch = state.leader_epoch != self.leader_epoch
        if state.leader == self._broker_id and is_new_epoch and self.leader_epoch >= 0:
            self.unclean_elections += self._broker_id not in self.isr
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.replicas = tuple(state.replicas)
        self.isr = tuple(state.isr)
        self.adding = tuple(state.adding)
        self.elr = tuple(state.elr)
        self.min_isr = self._minimum()
        self.is_leader = state.leader == self._broker_id
        if self.is_leader:
            self._lead(is_new_epoch)
        else:
            self.in_sync = None
            # An epoch in which this broker led but wrote nothing means nothing to the new leader.
            self.log.epochs.truncate_end(self.log.log_end)
        if self.follower_sessions and was != (self.is_leader, self.leader_epoch):
            self._tell_role()

    def _lead(self, is_new_epoch: bool) -> None:
        log = self.log
        log.epochs.assign(self.leader_epoch, log.log_end)
        self.epoch_start = log.epochs.latest_start
        self._announced_end = log.log_end
        if self.replicas == (self._broker_id,):
            self.in_sync = None
        elif self.in_sync is None or is_new_epoch:
            self.in_sync = InSync(
                self._broker_id,
                self.replicas,
                self.isr,
                self.epoch_start,
                time.monotonic(),
                self.elr,
                self.min_isr,
            )
        else:
            self._ask_progress(self.in_sync.agreed(self.replicas, self.isr, self.elr, self.min_isr))
        if self.in_sync is None:
            self._advance_high_watermark()
        else:
            self.count_followers()
        if log.flushed < log.log_end:
            self.ask_flush()

    @property
    def losses(self) -> int:
        """How often this replica may have lost what a leader acknowledged."""
        return self.unclean_elections + self.log.truncations

    def resign(self) -> None:
        """Stop leading, until the cluster says otherwise.

        What is known of the followers stays: a proposal of theirs may yet take effect.
        """
        self.is_leader = False
        if self.follower_sessions:
            self._tell_role()

    def _tell_role(self) -> None:
        for session in list(self.follower_sessions or ()):
            session.role_changed()

    def configure(self, config: LogConfig) -> None:
        """Apply the topic's new settings."""
        self.log.config = config
        self.min_isr = self._minimum()
        if self.is_leader:
            if self.in_sync is not None:
                self.in_sync.agreed(self.replicas, self.isr, self.elr, self.min_isr)
            self._advance_high_watermark()
        self.ask_flush()
        if self.is_leader:
            self.wake()

    def _minimum(self) -> int:
        return minimum_isr(self.log.config.min_insync_replicas, self.replicas, self.adding)

    def check_epoch(self, leader_epoch: int) -> Error:
        """KIP-320: whether a client's idea of the leader epoch (-1: none) is ours."""
        if leader_epoch in (-1, self.leader_epoch):
            return Error.NONE
        if leader_epoch < self.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        return Error.UNKNOWN_LEADER_EPOCH

    # Writing

    def append(
        self,
        batch: memoryview,
        now_ms: int,
        check: RecordCheck | None = None,
        guard: Verification | None = None,
    ) -> tuple[int, int]:
        """Stage a producer's batch; see `Log.append`."""
        result = self.log.append(batch, self.leader_epoch, now_ms, check=check, guard=guard)
        if not self._is_dirty:
            self._is_dirty = True
            self._dirty.append(self)
        return result

    def append_unsequenced(
        self, batch: memoryview, now_ms: int, guard: Verification | None = None
    ) -> None:
        """Stage a batch that a broker writes for a producer, without a sequence."""
        log = self.log
        log.append(batch, self.leader_epoch, now_ms, from_client=False, guard=guard)
        if not self._is_dirty:
            self._is_dirty = True
            self._dirty.append(self)

    def append_marker(self, end: TransactionEnd, now_ms: int) -> int:
        """Stage a coordinator's marker; see `moldau.log.markers`. Returns its offset."""
        offset = append_marker(self.log, end, self.leader_epoch, now_ms)
        if not self._is_dirty:
            self._is_dirty = True
            self._dirty.append(self)
        return offset

    def commit(self) -> StorageError | None:
        """Write what is staged and move the high watermark; the error if the disk refuses."""
        self._is_dirty = False
        try:
            self.log.commit()
        except StorageError as error:
            self.log.report(error)
            return error
        if self.log.config.flushes:
            self._flusher.appended(self)
        self._advance_high_watermark()
        return None

    def announce(self) -> None:
        """Tell followers about a commit, and those who wait, if it moved the high watermark."""
        if self.in_sync is None:
            if self.waiters:
                self.wake()
            return
        log = self.log
        if self.follower_sessions:
            before = self._announced_end
            for session in self.follower_sessions:
                session.log_grew(before)
        self._announced_end = log.log_end
        if log.high_watermark != self._announced_watermark:
            self._watermark_moved()

    def ask_flush(self) -> None:
        """Somebody waits for what was just written: a flush policy need not take its time."""
        if self.log.config.flushes:
            self._flusher.flush(self)

    async def force(self) -> None:
        """Wait until everything written so far is on disk, or the disk has refused."""
        await self._flusher.force(self)

    def flushed(self) -> None:
        """More of the log is on disk."""
        if self.is_leader:
            self._advance_high_watermark()
        if self.in_sync is None:
            self.wake()
        elif self.log.high_watermark != self._announced_watermark:
            self._watermark_moved()

    def _advance_high_watermark(self) -> None:
        log = self.log
        in_sync = self.in_sync
        if in_sync is None:
            if self.isr == (self._broker_id,):
                log.advance_high_watermark(log.flushed if log.config.flushes else log.log_end)
        elif self.is_leader and in_sync.may_commit:
            own_end = log.flushed if log.config.flushes else log.log_end
            log.advance_high_watermark(
                in_sync.committed(own_end, log.log_end, time.monotonic(), self.lag_s)
            )

    # Followers

    def fetched_by(self, replica: int, log_end: int, log_start: int, epoch: int, at: float) -> None:
        """A follower asks for `log_end`: it has everything before."""
        in_sync, log = self.in_sync, self.log
        assert in_sync is not None
        follower = in_sync.followers[replica]
        has_deleted = follower.log_start != log_start
        follower.fetched(log_end, log_start, epoch, log.log_end, at)
        self.count_followers()
        if has_deleted:
            self.wake()

    def registered(self, live: Container[int]) -> None:
        """Only these brokers are registered."""
        if self.in_sync is not None:
            self._ask_progress(self.in_sync.gone(live))
            self.count_followers()

    def _ask_progress(self, lost: Collection[int]) -> None:
        """Where these followers are is to be read again from what they say."""
        if lost and self.follower_sessions:
            for session in self.follower_sessions:
                if session.replica in lost:
                    session.progress_lost()

    def session_began(self, session: FollowerSession) -> None:
        """A follower copies this partition by the session from now on."""
        if self.follower_sessions is None:
            self.follower_sessions = {}
        self.follower_sessions[session] = None

    def session_ended(self, ended: FollowerSession) -> None:
        """A session is no more, and what it said last need not be what the follower said last."""
        if self.follower_sessions and ended in self.follower_sessions:
            del self.follower_sessions[ended]
            self._ask_progress((ended.replica,))

    def count_followers(self) -> None:
        """Move the high watermark if the followers, or the set of those that count, allow it."""
        self._advance_high_watermark()
        if self.log.high_watermark != self._announced_watermark:
            self._watermark_moved()

    def start_moved(self) -> None:
        """The log begins later than it did; followers are to know."""
        if self.follower_sessions:
            for session in self.follower_sessions:
                session.offsets_moved()

    def _watermark_moved(self) -> None:
        self._announced_watermark = self.log.high_watermark
        if self.follower_sessions:
            for session in self.follower_sessions:
                session.offsets_moved()
        self.wake()

    # Following

    def append_replica(self, records: memoryview, asked: int, begins: int | None = 0) -> None:
        """Write the leader's response to a fetch from `asked`; see `moldau.log.replica`.

        Batches before a bad one are written. StorageError when the disk refuses.
        """
        log = self.log
        try:
            now_ms = time.time_ns() // 1_000_000
            append_replica(log, records, asked, self.leader_epoch, now_ms, begins)
        finally:
            log.commit()

    def follow_offsets(self, high_watermark: int, log_start: int) -> None:
        """Take over the leader's high watermark and log start, as far as this log reaches."""
        log = self.log
        if high_watermark > log.high_watermark:
            before = log.high_watermark
            log.advance_high_watermark(high_watermark)
            if log.high_watermark != before:
                self.wake()
        if log.log_start < log_start <= log.high_watermark:
            delete_records_before(log, log_start)

    # Waiting

    def wait(self, waiter: Waiter) -> None:
        """Tell `waiter` about the next move of the high watermark, until `unwait`."""
        if self.waiters is None:
            self.waiters = {}
        self.waiters[waiter] = None

    def unwait(self, waiter: Waiter) -> None:
        if self.waiters is not None:
            self.waiters.pop(waiter, None)

    def wake(self) -> None:
        """Tell everyone who waits."""
        if self.waiters:
            for waiter in list(self.waiters):
                waiter.notify()
