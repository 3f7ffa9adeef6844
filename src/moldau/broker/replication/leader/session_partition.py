"""Partitions of a follower's session: what the follower wants of one, and was last sent of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moldau.broker.errors import code_and_message
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.refusals import not_here
from moldau.broker.replication.divergence import diverging, fenced
from moldau.log.errors import LogError
from moldau.log.lookup import verify
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.primitives import TopicKey

SessionKey = tuple[TopicKey, int]


class Session(Protocol):
    """The session that a partition belongs to, of one follower."""

    id: int
    replica: int
    replica_epoch: int
    fetched_at: float
    is_eager: bool
    changed: dict[SessionPartition, None]

    def answer_soon(self) -> None:
        """Answer a parked request once what is being done is done."""


class SessionPartition:
    """One partition of one follower's session. Event loop only.

    `partition` is None where this broker has no such partition. The partition calls the methods
    that say what has happened to it; the session calls the others.
    """

    __slots__ = (
        "_held", "_reconsider", "has_progress", "is_new", "key", "partition", "refusal",
        "sent_high_watermark", "sent_log_start", "session", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        partitions: Partitions,
        reconsider: Callable[[Partition], None],
        session: Session,
        key: SessionKey,
        partition: Partition | None,
        wanted: FetchPartition,
    ) -> None:
        self._held = partitions
        self._reconsider = reconsider
        self.session = session
        self.key = key
        self.partition = partition
        self.wanted = wanted
        self.refusal: FetchedPartition | None = None
        # The follower has said where it is, which the leader has yet to take in.
        self.has_progress = True
        self.is_new = True
        self.sent_high_watermark = self.sent_log_start = -1

    # Called by the partition

    @property
    def replica(self) -> int:
        return self.session.replica

    def log_grew(self, from_end: int) -> None:
        session, partition = self.session, self.partition
        assert partition is not None
        if self.wanted.fetch_offset >= from_end and partition.in_sync is not None:
            # It is not named while it has everything, but has had it all along.
            follower = partition.in_sync.followers.get(session.replica)
            if follower is not None and follower.log_end >= from_end:
                follower.had_everything(session.fetched_at)
        session.changed[self] = None
        session.answer_soon()

    def offsets_moved(self) -> None:
        self.session.changed[self] = None
        if self.session.is_eager:
            self.session.answer_soon()

    def role_changed(self) -> None:
        self.session.changed[self] = None
        self.session.answer_soon()

    def progress_lost(self) -> None:
        self.has_progress = True
        self.session.changed[self] = None

    # Called by the session

    def take_progress(self) -> None:
        """Take in where the follower is, or find why it cannot be served."""
        self.has_progress = False
        self.refusal = self._refuse() or self._misplaced()
        partition = self.partition
        if self.refusal is not None or partition is None or partition.in_sync is None:
            return
        session = self.session
        replica, replica_epoch = session.replica, session.replica_epoch
        registered = self._held.state.brokers.get(replica)
        if registered is None or registered.epoch != replica_epoch:
            # Word of this life has yet to come, and of what it gave up: it is served, not counted.
            self.has_progress = True
            return
        wanted, log = self.wanted, partition.log
        follower = partition.in_sync.followers.get(replica)
        known_end = -1 if follower is None else follower.log_end
        if self.is_new and known_end == wanted.fetch_offset < log.log_end:
            # It asks again from the same offset: what it was sent may have been damaged, which only
            # its reader can see.
            try:
                verify(log, wanted.fetch_offset)
            except LogError as error:
                self.refusal = FetchedPartition(wanted.partition, code_and_message(error)[0])
                return
        partition.fetched_by(
            replica, wanted.fetch_offset, wanted.log_start, replica_epoch, session.fetched_at
        )
        if partition.in_sync.may_join(replica, log.high_watermark):
            self._reconsider(partition)

    def answer(self, room: int, is_first: bool) -> tuple[FetchedPartition | None, bool]:
        """Return what to send of this partition, if anything, and whether there is more."""
        refusal = self.refusal or self._refuse()
        if refusal is not None:
            return refusal, False
        assert self.partition is not None
        wanted, log = self.wanted, self.partition.log
        answer = FetchedPartition(
            wanted.partition, 0, log.high_watermark, log.last_stable, log.log_start
        )
        has_more = log.log_end > wanted.fetch_offset
        if has_more:
            limit = max(min(wanted.max_bytes, room), 0)
            try:
                if limit > 0 or is_first:
                    end = log.log_end
                    answer.records = log.read(wanted.fetch_offset, limit, end, is_first)
            except LogError as error:
                code, _ = code_and_message(error)
                return FetchedPartition(wanted.partition, code), False
        is_worth_sending = (
            answer.records is not None
            or log.high_watermark != self.sent_high_watermark
            or log.log_start != self.sent_log_start
            or not self.session.id
        )
        return (answer if is_worth_sending else None), has_more

    def _refuse(self) -> FetchedPartition | None:
        """Return why this follower may not copy the partition from here."""
        partition, index = self.partition, self.key[1]
        if partition is None:
            return not_here(self._held, *self.key)
        session = self.session
        leader = (partition.leader, partition.leader_epoch)
        epoch = self.wanted.current_leader_epoch
        if not partition.is_leader or epoch < 0:
            # One that does not say which term it follows may have been on its way since another.
            return FetchedPartition(index, Error.NOT_LEADER_OR_FOLLOWER, leader=leader)
        fence = partition.check_epoch(epoch)
        if fence:
            return fenced(partition, fence)
        if session.replica not in partition.replicas or session.replica == self._held.id:
            # One of us knows of a newer assignment than the other.
            return FetchedPartition(index, Error.UNKNOWN_LEADER_EPOCH)
        registered = self._held.state.brokers.get(session.replica)
        if session.replica_epoch < (0 if registered is None else registered.epoch):
            # An earlier life of the follower, or one that does not say which it is (KIP-903).
            return FetchedPartition(index, Error.NOT_LEADER_OR_FOLLOWER, leader=leader)
        if partition.log.offline is not None:
            # It may look empty: a follower would take that to heart, and cut what it has.
            return FetchedPartition(index, Error.KAFKA_STORAGE_ERROR)
        return None

    def _misplaced(self) -> FetchedPartition | None:
        """Return where the follower's log goes wrong, if it does."""
        assert self.partition is not None
        wanted, log = self.wanted, self.partition.log
        if wanted.fetch_offset >= log.log_start:
            parted = diverging(self.partition, wanted)
            if parted is not None or wanted.fetch_offset <= log.log_end:
                return parted
        return FetchedPartition(wanted.partition, Error.OFFSET_OUT_OF_RANGE)
