"""Followed partitions: what an answer of the leader does to its log.

An answer counts only for the question that it answers. A slow link may bring one late: after the
leader's term has ended and begun again, or after the log was cut or has grown. Its records would
then leave a hole, and what it says of the log's end or divergence is true no more. Questions are
numbered, and a partition remembers the last one that named it, in this term and since its log last
changed: an answer to an earlier one is dropped whole.
"""

from __future__ import annotations

import logging
import sys
from enum import Enum

from moldau.broker.partitions.partition import Partition
from moldau.broker.replication.divergence import common_end
from moldau.log.errors import LogError, StorageError
from moldau.log.flushes.flushing import has_unforced_cut
from moldau.log.prewriting import begin_prewrite
from moldau.log.segments.prewrite import Prewrite
from moldau.log.truncation import restart_at, truncate_to
from moldau.peer.errors import name_of
from moldau.records.batch import BatchError, BatchHeader, read_header
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.primitives import TopicIdPartition

logger = logging.getLogger("moldau.replication")

# The leader or the follower has yet to hear of a change of the cluster.
_PASSING = frozenset(
    (
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.UNKNOWN_TOPIC_ID,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    )
)


# Later than any question: no answer is due.
_NOT_ASKED = sys.maxsize


class Next(Enum):
    """The next step for a followed partition after an answer."""

    STAY = "nothing has changed"
    MOVE = "ask for what follows"
    FLUSH = "force it to disk, then ask for what follows"
    CHECKPOINT = "record that the log is shorter, then ask for what follows"
    RELOCATE = "find out the bounds of the leader's log"
    LEARN = "find out where an epoch of the leader began"
    RETRY = "ask again after a while"
    STOP = "the log accepts no more records"


class Followed:
    """A partition while it is followed in one leader epoch. Event loop only."""

    __slots__ = ("_asked", "_begins", "_complaint", "_question", "epoch", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        # The offset that was asked for last, and the number of the question that did.
        self._asked = -1
        self._question = _NOT_ASKED
        # Where the epoch of what follows this end of the log began by the leader's word.
        self._begins: tuple[int, int] | None = None
        self._complaint = ""

    @property
    def key(self) -> TopicIdPartition:
        return self.partition.topic_id, self.partition.index

    @property
    def is_current(self) -> bool:
        """Whether the leader of this epoch is still the one to follow."""
        partition = self.partition
        return partition.leader_epoch == self.epoch and not partition.is_leader

    @property
    def is_unflushed(self) -> bool:
        """Whether the leader must not be asked yet: it takes what is asked for as a sign that all
        before is on this disk, where a flush policy wants it there. And pages that were cut off
        must not come back among those that are copied in their place: no comparison of epochs
        would find them."""
        log = self.partition.log
        if has_unforced_cut(log):
            return True
        return log.config.flushes and log.flushed < log.log_end

    def wanted(self, max_bytes: int, question: int) -> FetchPartition:
        """Return what to ask the leader for in the request with this number."""
        partition, log = self.partition, self.partition.log
        self._asked = log.log_end
        self._question = question
        return FetchPartition(
            partition.index, self.epoch, log.log_end, log.epochs.latest, log.log_start, max_bytes
        )

    def take(self, fetched: FetchedPartition, question: int, *, is_part: bool = False) -> Next:
        """Apply the leader's answer to the request with this number, or a part of it that others
        follow."""
        if question < self._question:
            # Whatever it is about, the leader will be, or has been, asked again.
            return Next.STAY
        outcome = self._take(fetched)
        if is_part and outcome in (Next.MOVE, Next.FLUSH):
            self._asked = self.partition.log.log_end
        elif outcome is not Next.STAY:
            self._question = _NOT_ASKED
        return outcome

    def begin_prewrite(self, batch: memoryview, question: int) -> Prewrite | None:
        """Make room for a large batch of the answer to the request with this number, so that a
        thread can write it ahead."""
        log = self.partition.log
        if question < self._question or self._asked != log.log_end:
            return None
        return begin_prewrite(log, batch, read_header(batch).max_timestamp)

    def _take(self, fetched: FetchedPartition) -> Next:
        if fetched.error == Error.OFFSET_OUT_OF_RANGE:
            return Next.RELOCATE
        if fetched.error:
            passing = fetched.error in _PASSING
            self.complain(name_of(fetched.error), logging.DEBUG if passing else logging.WARNING)
            return Next.RETRY
        try:
            if fetched.diverging is not None:
                return self._cut(*fetched.diverging)
            return self._copy(fetched)
        except StorageError as error:
            self.complain(str(error), logging.ERROR)
            self.partition.log.report(error)
            return Next.STOP if self.partition.log.offline is not None else Next.RETRY
        except (BatchError, LogError) as error:
            self.complain(f"cannot append what the leader sent: {error}", logging.ERROR)
            return Next.RETRY

    def _copy(self, fetched: FetchedPartition) -> Next:
        partition, log = self.partition, self.partition.log
        start, records, asked = log.log_start, fetched.records, self._asked
        if records is not None:
            header = read_header(records)
            if header.base_offset < asked == log.log_end:
                if log.log_start < log.log_end or header.last_offset < log.log_end:
                    self.complain(
                        f"the leader sent offset {header.base_offset}, not {log.log_end}",
                        logging.ERROR,
                    )
                    return Next.RETRY
                # The log begins inside of a batch, since the leader's does.
                restart_at(log, header.base_offset, log.log_start)
                asked = header.base_offset
            begins = self._known_begin()
            if begins is None and self._hides_begin(header):
                return Next.LEARN
            partition.append_replica(records, asked, begins)
        partition.follow_offsets(fetched.high_watermark, fetched.log_start)
        self._complaint = ""
        return self._go_on() if records is not None or log.log_start != start else Next.STAY

    def _hides_begin(self, header: BatchHeader) -> bool:
        """Return whether a batch is the first here of an epoch that may have begun before it, where
        compaction has left a gap."""
        log = self.partition.log
        return header.leader_epoch > max(log.epochs.latest, 0) and header.base_offset > log.log_end

    def _known_begin(self) -> int | None:
        if self._begins is not None and self._begins[0] == self.partition.log.log_end:
            return self._begins[1]
        return None

    @property
    def last_epoch(self) -> int:
        """The last epoch that this log has anything of; 0 if there is none yet."""
        return max(self.partition.log.epochs.latest, 0)

    def learn(self, begins: int) -> None:
        """Take the leader's word on where the epoch began that follows the log's last one."""
        self._begins = (self.partition.log.log_end, max(begins, 0))

    def _go_on(self) -> Next:
        return Next.FLUSH if self.is_unflushed else Next.MOVE

    def _cut(self, epoch: int, leader_end: int) -> Next:
        """Truncate what the leader does not have."""
        log = self.partition.log
        before = (log.log_end, log.epochs.latest)
        end = common_end(log.epochs, log.log_end, epoch, leader_end)
        self._truncate(end, f"epoch {epoch} of the leader ends at {leader_end}")
        if (log.log_end, log.epochs.latest) == before:
            self.complain(
                f"the leader's log diverges from ours in epoch {epoch} at "
                f"{leader_end}, which is beyond our end {log.log_end}",
                logging.ERROR,
            )
            return Next.RETRY
        return Next.CHECKPOINT if self.partition.is_cut else self._go_on()

    def relocate(self, leader_start: int, leader_end: int) -> Next:
        """Move to the bounds of the leader's log, [leader_start, leader_end]."""
        log = self.partition.log
        try:
            if leader_end < log.log_end:
                self._truncate(leader_end, "the leader's log ends there")
                return Next.CHECKPOINT
            if leader_start > log.log_end:
                logger.warning(
                    "%s: the leader has deleted everything before %d; continuing there, not at %d",
                    self, leader_start, log.log_end,
                )  # fmt: skip
                self.partition.is_cut = True
                restart_at(log, leader_start)
                return Next.CHECKPOINT
        except StorageError as error:
            self.complain(str(error), logging.ERROR)
            log.report(error)
            return Next.STOP if log.offline is not None else Next.RETRY
        return Next.RETRY

    def _truncate(self, end: int, reason: str) -> None:
        log = self.partition.log
        before, watermark = log.log_end, log.high_watermark
        if end < watermark:
            logger.error(
                "%s: truncating below the high watermark %d, committed records are lost: %s",
                self, watermark, reason,
            )  # fmt: skip
        promised = max(log.flushed, log.durability.recovery_point)
        try:
            truncate_to(log, end)
        finally:
            # It may end before that: with its last batch.
            if log.log_end < promised:
                self.partition.is_cut = True
        if log.log_end != before:
            logger.info(
                "%s: truncated from %d to %d to follow broker %d in epoch %d: %s",
                self, before, log.log_end, self.partition.leader, self.epoch, reason,
            )  # fmt: skip

    def complain(self, what: str, level: int) -> None:
        """Log it, unless it is the same as the last line."""
        if what != self._complaint:
            self._complaint = what
            logger.log(level, "%s cannot be copied from broker %d: %s",
                       self, self.partition.leader, what)  # fmt: skip

    def __str__(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"
