"""One partition's log."""

from __future__ import annotations

import contextlib
import logging
import struct
import uuid
from collections.abc import Callable

from moldau.log.acceptance import check_attributes, check_timestamps, refusal, set_append_time
from moldau.log.config import LogConfig
from moldau.log.contents import Contents
from moldau.log.errors import CorruptFile, CorruptLog, OffsetOutOfRange, StorageError
from moldau.log.files.open_files import Slice
from moldau.log.flushes.durability import Durability
from moldau.log.producers.replay import check_coordinator
from moldau.log.producers.snapshots import Snapshots
from moldau.log.producers.verifications import Verification
from moldau.log.reader import Reader
from moldau.log.record_check import RecordCheck
from moldau.log.segments.aborted_index import AbortedTransaction
from moldau.log.segments.limits import Limits
from moldau.log.segments.prewrite import WORTH_PREWRITING
from moldau.log.segments.segment import Segment
from moldau.log.segments.segments import Segments
from moldau.log.writer import Writer
from moldau.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    SMALLEST_RECORD,
    TRANSACTIONAL_BIT,
)
from moldau.records.checksum import crc32c

logger = logging.getLogger("moldau.log")

# base offset, batch length, leader epoch: what the leader sets, outside of the CRC
_put_prefix = struct.Struct(">qii").pack_into
_unpack = HEADER.unpack_from


class Log:
    """A partition's batches in segments, oldest first, in a folder `<topic>-<partition>`.

    Beside them lie producer snapshots, `leader-epoch-checkpoint` and `partition.metadata`.
    Appends are staged: they have offsets, but are in no file yet. `commit` writes all that is
    staged with one call to the system, or, where the disk refuses, leaves the log as it was at the
    commit before. Nothing is kept of what was written: readers get slices of the segment files.

    log_start <= last_stable <= high_watermark <= written <= log_end; `flushed` lies between
    log_start and written. A read never gives what has not been written. A crash leaves a prefix of
    what was written, which recovery cuts to whole batches; nothing before `flushed` can be missing.

    Here is what happens all the time. What is done to a log now and then has modules of its own,
    which use its parts: `replica`, `markers`, `truncation`, `retention`, `lookup`, `flushing`,
    `compaction`.

    Event loop only, unless a method says otherwise. Any method may raise StorageError; `offline` is
    set, and raised by all that need the disk, when what is there cannot be trusted.
    """

    __slots__ = (
        "_after_max_ms", "_append_time", "_before_max_ms", "_config", "_inspect",
        "_max_bytes", "clean_end", "durability", "end_entry", "epochs", "flushed", "folder",
        "has_aborted", "high_watermark", "log_end", "log_start", "offline", "on_failure",
        "partition", "producers", "reader", "segments", "snapshots", "topic", "topic_id",
        "truncations", "writer", "written",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        segments: Segments,
        snapshots: Snapshots,
        contents: Contents,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.folder = segments.folder
        self.segments = segments
        self.snapshots = snapshots
        self.log_start, self.log_end, self.flushed, self.producers, self.epochs = contents
        self.high_watermark = self.log_start
        # Staged batches come after it.
        self.written = self.log_end
        # Compaction has left at most one record a key before it.
        self.clean_end = 0
        # How often the log was truncated or started again.
        self.truncations = 0
        self.offline: StorageError | None = None
        # Told when the log has failed, on whatever thread that was found; offline or not.
        self.on_failure: Callable[[Log, StorageError], None] | None = None
        self.writer = Writer(segments)
        self.reader = Reader(segments)
        self.durability = Durability(segments)
        # Where the log's end is also written down, outside of its folder (see `store.ends`).
        self.end_entry: tuple[memoryview, int] | None = None
        # Whether any transaction may be indexed as aborted.
        self.has_aborted = any(segment.aborted is not None for segment in segments)
        self.config = config

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.log_start}..{self.log_end})"

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._max_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._append_time = config.uses_append_time
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._inspect = config.looks_into_records
        self.segments.obey(Limits.of(config))

    # Offsets

    @property
    def last_stable(self) -> int:
        """Everything before it belongs to no open transaction."""
        producers = self.producers
        if producers.open or producers.decided:
            unstable = producers.first_unstable()
            if unstable is not None and unstable < self.high_watermark:
                return max(unstable, self.log_start)
        return self.high_watermark

    def end_at(self, log_end: int) -> None:
        """Have what is written end there; the files are the caller's."""
        self.log_end = self.written = log_end
        if self.end_entry is not None:
            view, place = self.end_entry
            view[place] = log_end

    def advance_high_watermark(self, offset: int) -> None:
        """Move the high watermark up to `offset`, at most to what has been written."""
        if offset > self.written:
            offset = self.written
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers.decided:
                self.producers.replicated_to(offset)

    # Appending

    def append(
        self,
        batch: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        from_client: bool = True,
        has_keys: bool = False,
        check: RecordCheck | None = None,
        guard: Verification | None = None,
    ) -> tuple[int, int]:
        """Stage exactly one batch as the leader; returns (base offset, append time or -1).

        `batch` must be writable: base offset and leader epoch are set in place (attributes, largest
        timestamp and CRC too where the topic uses append time), and the buffer must stay as it is
        until `commit`. A batch that repeats one of the producer's last five is not written again;
        its first offset is returned. What a coordinator writes (`from_client=False`) may be a
        control batch or have no records, and its sequence is not checked; nor are its records where
        it says that they have keys. A `check` of the records that has been done already is not done
        again. The first batch of a transaction needs a `guard`, which the producers'
        `verifications` give.

        Raises CorruptBatch, InvalidRecord, BatchTooLarge, InvalidTimestamp, InvalidProducerEpoch,
        OutOfOrderSequence, InvalidTransactionState, CoordinatorFenced; StorageError when a new
        segment could not be begun. If anything was staged it is lost then, and StorageError is
        raised until `commit` has raised it once.
        """
        writer = self.writer
        if writer.failure is not None:
            raise writer.failure
        size = len(batch)
        if size < HEADER_SIZE:
            raise refusal(batch, self._max_bytes)
        (
            given_offset, length, _, magic, crc, attributes, delta, base_timestamp, max_timestamp,
            producer_id, producer_epoch, sequence, count,
        ) = _unpack(batch)  # fmt: skip
        if (
            length + PREFIX_SIZE != size
            or magic != MAGIC
            or size > self._max_bytes
            or (
                (size < WORTH_PREWRITING or not writer.has_checked(batch))
                and crc32c(batch[CRC_START:]) != crc
            )
            or count < 1
            or delta != count - 1
            or (count * SMALLEST_RECORD > size - HEADER_SIZE and not attributes & CODEC_MASK)
        ) and (from_client or count or delta):
            raise refusal(batch, self._max_bytes)
        if attributes or producer_id >= 0 or given_offset:
            check_attributes(
                attributes, given_offset, producer_id, sequence, self._append_time, from_client
            )
        append_time = -1
        if self._append_time:
            append_time = max_timestamp = now_ms
        else:
            earliest, latest = now_ms - self._before_max_ms, now_ms + self._after_max_ms
            if max_timestamp > latest or base_timestamp < earliest or max_timestamp < earliest:
                check_timestamps(base_timestamp, max_timestamp, earliest, latest)
        marker = None
        is_transactional = attributes & TRANSACTIONAL_BIT
        if producer_id >= 0:
            producers = self.producers
            if not from_client:
                marker = check_coordinator(producers, batch, guard)
            else:
                if is_transactional:
                    producers.check_begin(producer_id, producer_epoch, sequence, delta, guard)
                repeated = producers.check(
                    producer_id, producer_epoch, sequence, delta, is_transactional
                )
                if repeated is not None:
                    return repeated.first_offset, repeated.timestamp if append_time >= 0 else -1
        staged: memoryview | bytearray = batch
        if (
            self._inspect
            and count
            and not attributes & CONTROL_BIT
            and not (has_keys and self._config.compression_type == "producer")
        ):
            staged = (check or RecordCheck(batch, self._config)).finish()
            size = len(staged)
            length = size - PREFIX_SIZE
        if append_time >= 0:
            set_append_time(staged, append_time)

        base = self.log_end
        last = base + delta
        segment = writer.active
        if segment is None:
            segment = writer.activate(now_ms)
        end = segment.end
        if end and (
            end + size > segment.limit
            or max_timestamp > segment.roll_after_ms
            or last > segment.max_offset
        ):
            segment = self.roll(base, now_ms)

        if writer.mark is None:
            writer.mark = (base, segment, segment.state())
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        if producer_id >= 0:
            if marker is not None:
                ended = producers.note_marker(producer_id, producer_epoch, base, now_ms, marker)
                if ended is not None:
                    self.note_aborted(segment, ended)
            elif not attributes & CONTROL_BIT:
                producers.note(
                    producer_id, producer_epoch, sequence, base, delta, max_timestamp,
                    is_transactional, now_ms,
                )  # fmt: skip
        _put_prefix(staged, 0, base, length, leader_epoch)
        writer.staged.append(staged)
        segment.append(size, last, max_timestamp)
        self.log_end = last + 1
        return base, append_time

    def commit(self) -> None:
        """Write everything staged since the last commit.

        StorageError when the disk refuses; then nothing since the last commit has happened.
        """
        writer = self.writer
        if writer.failure is not None:
            writer.raise_failure()
        if writer.mark is None:
            return
        try:
            writer.write()
        except StorageError:
            self._roll_back()
            raise
        self.written = log_end = self.log_end
        if self.end_entry is not None:
            view, place = self.end_entry
            view[place] = log_end
        writer.mark = None
        unsettled = self.producers.unsettled
        if unsettled:
            unsettled.clear()

    def roll(self, base: int, now_ms: int) -> Segment:
        """Close the active segment and begin one at `base`."""
        was_staged = self.writer.mark is not None
        try:
            segment = self.writer.roll(base, now_ms)
        except StorageError as error:
            self._roll_back()
            if was_staged:
                self.writer.failure = error
            raise
        self.end_at(self.log_end)
        self.durability.take_snapshot(self.written, self.snapshots, self.producers, self.segments)
        return segment

    def _roll_back(self) -> None:
        """Go back to the last commit."""
        log_end = self.writer.roll_back()
        if log_end is not None:
            self.end_at(log_end)
            self.reader.forget()
            self.producers.rollback(log_end)
            self.epochs.truncate_end(log_end)
            self.snapshots.remove_above(log_end)
            # If the disk refuses, or has damaged the index, the next start makes it again.
            with contextlib.suppress(StorageError, CorruptFile):
                self.segments.last.forget_aborted(log_end)

    def note_aborted(self, segment: Segment, aborted: AbortedTransaction) -> None:
        """Index an aborted transaction whose marker is about to be staged."""
        segment.note_aborted(aborted)
        self.has_aborted = True

    # Reading

    def read(
        self, offset: int, max_bytes: int, up_to: int, whole_first: bool = True
    ) -> Slice | None:
        """Whole batches from the one that holds `offset` on, out of one segment.

        The slice ends at or before `up_to` and holds at most `max_bytes`, but for the first batch,
        which is given whole where `whole_first`. None when there is nothing to give: `offset` is at
        `up_to` or at the end, or the first batch does not fit. OffsetOutOfRange outside of
        [log_start, log_end].
        """
        written = self.written
        if up_to > written:
            up_to = written
        if self.offline is not None:
            raise self.offline
        if offset >= up_to or offset < self.log_start:
            if offset < self.log_start or offset > self.log_end:
                raise OffsetOutOfRange(offset, self.log_start, self.log_end)
            return None
        try:
            return self.reader.read(offset, max_bytes, up_to, written, whole_first)
        except StorageError as error:
            self.read_failed(error)
            raise

    def aborted_transactions(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of transactions that a reader of [first_offset, last_offset)
        must skip, by their markers."""
        if not self.has_aborted:
            return []
        try:
            return self.segments.aborted_transactions(first_offset, last_offset)
        except StorageError as error:
            self.read_failed(error)
            raise

    # Failing and closing

    def abandon(self, reason: StorageError | None = None) -> None:
        """Let go of the files without writing anything more; offline from then on."""
        self.offline = self.offline or reason or StorageError(self.folder, "the log is closed")
        self.writer.close(self.offline)
        self.reader.forget()
        self.segments.release()

    def report(self, error: StorageError) -> None:
        """The disk refused: tell whom it concerns, unless it may soon do so no more."""
        if error.is_damage and self.on_failure is not None:
            self.on_failure(self, error)

    def fail(self, error: StorageError) -> None:
        """Take the log offline, and log it: its data can no longer be trusted."""
        self.abandon(error)
        if self.on_failure is not None:
            self.on_failure(self, error)

    def read_failed(self, error: StorageError) -> None:
        """A reader met this. Any thread."""
        if isinstance(error, CorruptLog):
            logger.critical("%s is offline because its data is damaged: %s", self.folder, error)
            self.fail(error)
        else:
            self.report(error)
