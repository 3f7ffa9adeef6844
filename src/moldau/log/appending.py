"""The writable end of a log: batches are staged, then written together."""

from __future__ import annotations

import struct

from moldau.log import lookup
from moldau.log.acceptance import (
    check_attributes,
    check_timestamps,
    set_append_time,
    wrong_length,
    wrong_magic,
)
from moldau.log.errors import StorageError, UnexpectedOffset
from moldau.log.record_check import RecordCheck
from moldau.log.segments.segment import MAX_RELATIVE_OFFSET, Segment
from moldau.log.state import LogState
from moldau.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    SMALLEST_RECORD,
    TRANSACTIONAL_BIT,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    NotOneBatch,
    batches,
    check_batch,
)
from moldau.records.checksum import crc32c
from moldau.records.record import read_end_marker

# base offset, batch length, leader epoch: what the leader sets, outside of the CRC
_put_prefix = struct.Struct(">qii").pack_into
_unpack = HEADER.unpack_from


class AppendingLog(LogState):
    """What is appended since the last commit is staged: it has offsets, but is not in a file yet.

    A commit writes all of it with one call, or, where the disk refuses, leaves the log as it was at
    the commit before: offsets, producers, epochs, segments and the bytes of the files.
    """

    __slots__ = ()

    def append(
        self,
        batch: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        from_client: bool = True,
        check: RecordCheck | None = None,
    ) -> tuple[int, int]:
        """Stage exactly one batch as the leader; returns (base offset, append time or -1).

        `batch` must be writable: base offset and leader epoch are set in place (attributes, largest
        timestamp and CRC too where the topic uses append time), and the buffer must stay as it is
        until `commit`. A batch that repeats one of the producer's last five is not written again;
        its first offset is returned. What a coordinator writes (`from_client=False`) may be a
        control batch, and its sequence is not checked. A `check` of its records that has been done
        already is not done again.

        Raises CorruptBatch, InvalidRecord, BatchTooLarge, InvalidTimestamp, InvalidProducerEpoch,
        OutOfOrderSequence, InvalidTransactionState, CoordinatorFenced; StorageError when a new
        segment could not be begun. If anything was staged it is lost then, and StorageError is
        raised until `commit` has raised it once.
        """
        if self._failure is not None:
            raise self._failure
        size = len(batch)
        if size < HEADER_SIZE:
            raise NotOneBatch(f"{size} bytes are too few for a batch header")
        (
            given_offset, length, _, magic, crc, attributes, delta, base_timestamp, max_timestamp,
            producer_id, producer_epoch, sequence, count,
        ) = _unpack(batch)  # fmt: skip
        if length + PREFIX_SIZE != size:
            raise wrong_length(length + PREFIX_SIZE, size)
        if magic != MAGIC:
            raise wrong_magic(magic)
        if size > self._max_bytes:
            raise BatchTooLarge(size, self._max_bytes)
        if crc32c(batch[CRC_START:]) != crc:
            raise CorruptBatch("the CRC does not match")
        if count < 1 or delta != count - 1:
            raise InvalidRecord(f"{count} records over {delta + 1} offsets")
        if attributes or producer_id >= 0 or given_offset:
            check_attributes(
                attributes,
                given_offset,
                producer_id,
                sequence,
                append_time=self._append_time,
                from_client=from_client,
            )
        if not attributes & CODEC_MASK and count * SMALLEST_RECORD > size - HEADER_SIZE:
            raise InvalidRecord(f"{count} records cannot lie in {size - HEADER_SIZE} bytes")

        append_time = -1
        if self._append_time:
            append_time = max_timestamp = now_ms
        else:
            earliest, latest = now_ms - self._before_max_ms, now_ms + self._after_max_ms
            if max_timestamp > latest or base_timestamp < earliest or max_timestamp < earliest:
                check_timestamps(base_timestamp, max_timestamp, earliest, latest)

        marker = None
        if producer_id >= 0:
            producers = self.producers
            if attributes & CONTROL_BIT:
                marker = read_end_marker(batch)
                if marker is not None:
                    producers.check_marker(producer_id, producer_epoch, marker)
            elif not from_client:
                producers.check_epoch(producer_id, producer_epoch)
            else:
                repeated = producers.check(
                    producer_id, producer_epoch, sequence, delta, attributes & TRANSACTIONAL_BIT
                )
                if repeated is not None:
                    return repeated.first_offset, repeated.timestamp if append_time >= 0 else -1

        staged: memoryview | bytearray = batch
        if self._inspect and not attributes & CONTROL_BIT:
            staged = (check or RecordCheck(batch, self._config)).finish()
            size = len(staged)
            length = size - PREFIX_SIZE
        if append_time >= 0:
            set_append_time(staged, append_time)

        base = self.log_end
        last = base + delta
        segment = self._active
        if segment is None:
            segment = self._activate(now_ms)
        position = segment.end
        if (
            position + size > segment.limit
            or max_timestamp > segment.roll_after_ms
            or last > segment.max_offset
        ) and position:
            segment = self._roll(base, now_ms)
            position = 0

        if self._mark is None:
            self._mark = (base, segment, segment.state())
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        if producer_id >= 0:
            if marker is not None:
                producers.note_marker(producer_id, producer_epoch, base, now_ms, marker)
            elif not attributes & CONTROL_BIT:
                producers.note(
                    producer_id,
                    producer_epoch,
                    sequence,
                    base,
                    delta,
                    max_timestamp,
                    attributes & TRANSACTIONAL_BIT,
                    now_ms,
                )
        _put_prefix(staged, 0, base, length, leader_epoch)
        self._staged.append(staged)
        segment.append(size, last, max_timestamp)
        self.log_end = last + 1
        return base, append_time

    def append_replica(self, data: memoryview, asked: int, now_ms: int) -> None:
        """Stage whole batches that the leader sent when it was asked for the offset `asked`.

        Offsets and epochs stay as given. Gaps are allowed, for compaction leaves some: that these
        are the batches that follow is known only by what was asked. UnexpectedOffset if that is not
        the log's end, or a batch lies below it; CorruptBatch or InvalidRecord for what is no batch,
        StorageError as in `append`. Batches before the bad one are staged.
        """
        if self._failure is not None:
            raise self._failure
        if asked != self.log_end:
            raise UnexpectedOffset(asked, self.log_end)
        for position, header in batches(data):
            size = header.size
            check_batch(data, position, size, from_producer=False)
            base, last = header.base_offset, header.last_offset
            timestamp = header.max_timestamp if header.count else NO_TIMESTAMP
            if base < self.log_end:
                raise UnexpectedOffset(base, self.log_end)
            batch = data[position : position + size]
            segment = self._active
            if segment is None:
                segment = self._activate(timestamp)
            at = segment.end
            if last > segment.max_offset or (
                at and (at + size > segment.limit or timestamp > segment.roll_after_ms)
            ):
                # Recovery takes segments that do not meet for a loss, so they meet where they can.
                is_far = last - self.log_end > MAX_RELATIVE_OFFSET
                segment = self._roll(base if is_far else self.log_end, timestamp)
                at = 0
            if self._mark is None:
                self._mark = (self.log_end, segment, segment.state())
            if header.leader_epoch > self.epochs.latest:
                self.epochs.assign(header.leader_epoch, base)
            lookup.note_batch(self.producers, header, batch, now_ms)
            self._staged.append(batch)
            segment.append(size, last, timestamp)
            self.log_end = last + 1

    def commit(self) -> None:
        """Write everything staged since the last commit.

        StorageError when the disk refuses; then nothing since the last commit has happened.
        """
        if self._mark is None:
            failure = self._failure
            if failure is not None:
                self._failure = None
                raise failure
            return
        if self._staged:
            self._write()
        self._mark = None
        if self.producers.unsettled:
            self.producers.settle()

    def _activate(self, now_ms: int) -> Segment:
        if self.offline is not None:
            raise self.offline
        segment = self._segments[-1]
        segment.activate(now_ms)
        self._active = segment
        return segment

    def _write(self) -> None:
        """Write what is staged to the active segment; on failure everything is rolled back."""
        segment, staged = self._segments[-1], self._staged
        size = segment.end - segment.batches.size
        try:
            segment.write(staged)
        except StorageError:
            self._rollback()
            raise
        self._unsnapped += size
        self._written = self._ends[self._end_place] = self.log_end
        staged.clear()

    def _rollback(self) -> None:
        """Go back to the last commit, in memory and on disk."""
        self._staged.clear()
        mark, self._mark = self._mark, None
        if mark is None:
            return
        log_end, segment, state = mark
        rolled = self._segments[self._segments.index(segment) + 1 :]
        del self._segments[-len(rolled) or len(self._segments) :]
        self.log_end = self._written = self._ends[self._end_place] = log_end
        self._active = segment
        self._reader.forget()
        self.producers.rollback()
        self.epochs.truncate_end(log_end)
        try:
            segment.restore(state)
            for following in rolled:
                following.retire(self.trash)
            self._snapshots.remove_above(log_end)
        except (OSError, StorageError):
            # The disk is refusing, which the caller is being told already.
            return

    def _roll(self, base: int, now_ms: int) -> Segment:
        """Close the active segment and begin one at `base`."""
        was_staged = self._mark is not None
        segment = self._segments[-1]
        following = Segment(self.folder, base, 0, self.pool, self._limits)
        try:
            if self._staged:
                self._write()
            if segment.size:
                segment.seal()
            following.create(now_ms)
            if segment.size:
                self._segments.append(following)
            else:
                self._segments[-1] = following
                segment.retire(self.trash)
        except StorageError as error:
            self._rollback()
            if was_staged:
                self._failure = error
            raise
        self._files_made += 1
        self._active = following
        self.take_snapshot()
        return following

    def take_snapshot(self) -> None:
        """Write the producer state as of now, so that recovery need not read what lies before."""
        if self._written not in self._snapshots.offsets:
            self._snapshots.take(self._written, self.producers, self._bases())
        self._unsnapped = 0
