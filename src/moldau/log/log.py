"""One partition's log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from moldau.log import lookup
from moldau.log.errors import CorruptLog, OffsetOutOfRange, StorageError
from moldau.log.files.open_files import Slice
from moldau.log.flushing import FlushingLog
from moldau.log.producers.states import ProducerStates
from moldau.log.retention import Deleted, expired
from moldau.log.segments.names import SWAP_SUFFIX
from moldau.log.segments.segment import Segment

logger = logging.getLogger("moldau.log")

# offset, timestamp, leader epoch
_Found = tuple[int, int, int]


class Log(FlushingLog):
    """A partition's batches in segments, oldest first, in a folder `<topic>-<partition>`.

    Appends are staged and written by `commit`, many with one call to the system. Nothing is kept
    of what was written: readers get slices of the segment files.

    log_start <= last_stable <= high_watermark <= log_end; `flushed` lies between log_start and
    log_end. A read never gives what has not been written. A crash leaves a prefix of what was
    written, which recovery cuts to whole batches; nothing before `flushed` can be missing.

    Event loop only, unless a method says otherwise. Any method may raise StorageError; `offline` is
    set, and raised by all that need the disk, when what is there cannot be trusted.
    """

    __slots__ = ()

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
        written = self._written
        if up_to > written:
            up_to = written
        if self.offline is not None:
            raise self.offline
        if offset >= up_to or offset < self.log_start:
            if offset < self.log_start or offset > self.log_end:
                raise OffsetOutOfRange(offset, self.log_start, self.log_end)
            return None
        try:
            return self._reader.read(offset, max_bytes, up_to, written, whole_first)
        except CorruptLog as error:
            self._take_offline(error)
            raise
        except StorageError as error:
            self.report(error)
            raise

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record at or after that time.

        Exact inside batches. Any thread; reads and decompresses, so it may block.
        """
        return self._look_up(partial(lookup.offset_for_time, timestamp_ms))

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the largest timestamp.

        Any thread; may block.
        """
        return self._look_up(lookup.max_timestamp)

    def verify(self, offset: int) -> None:
        """CorruptLog, and offline, if the batch that holds `offset` is not what was written."""
        self._look_up(partial(lookup.check_batch_at, offset))

    def _look_up(self, search: Callable[[Sequence[Segment], int], _Found | None]) -> _Found | None:
        while True:
            if self.offline is not None:
                raise self.offline
            segments, truncations = self.segments, self._truncations
            try:
                return search(segments, self.log_start)
            except StorageError as error:
                # The log may have been changed under a search on a thread.
                if segments == self.segments and truncations == self._truncations:
                    if isinstance(error, CorruptLog):
                        self._take_offline(error)
                    else:
                        self.report(error)
                    raise

    def _take_offline(self, error: CorruptLog) -> None:
        logger.critical(
            "%s-%d is offline, its data is damaged: %s", self.topic, self.partition, error
        )
        self.fail(error)

    def aborted_transactions(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of transactions that a reader of the range must skip."""
        return []

    # Shrinking

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on (a batch that holds it goes whole), as a follower does.

        The log then ends with its last batch, which may be before `offset`. Blocks while it reads
        what the producer state is rebuilt from. The store's checkpoint must be written afterwards,
        or a crash will find less than the recovery point promises.
        """
        self._settle()
        if offset >= self.log_end:
            self.epochs.truncate_end(self.log_end)
            return
        if offset < self._segments[0].base:
            self.restart_at(offset)
            return
        number = self._reader.number_of(offset)
        segment = self._segments[number]
        position, _ = segment.find(offset)
        _, indexed, _ = segment.offset_index.lookup(offset - 1)
        end = segment.base
        for _, header in segment.batches.headers(indexed, position):
            end = header.last_offset + 1
        self._shrunk_to(end)
        self._snapshots.remove_above(end)
        for later in reversed(self._segments[number + 1 :]):
            later.retire(self.trash)
        del self._segments[number + 1 :]
        segment.truncate(position, end)
        latest = self._snapshots.latest(self.first_base)
        self.producers = lookup.rebuild_producers(self._segments, latest, end)

    def restart_at(self, offset: int, log_start: int | None = None) -> None:
        """Drop everything and go on at `offset`, as a follower does that lies too far behind.

        `log_start` is given where the first batch to come holds it, but begins before.
        """
        self._settle()
        for segment in self._segments:
            segment.retire(self.trash)
        segment = Segment(self.folder, offset, 0, self.pool, self._limits)
        segment.create(0)
        self._files_made += 1
        self._segments[:] = [segment]
        self._shrunk_to(offset)
        self.log_start = self.flushed = self.high_watermark = offset
        if log_start is not None:
            self.log_start = self.flushed = self.high_watermark = log_start
        self.epochs.truncate_end(0)
        self._snapshots.remove_above(-1)
        self.producers = ProducerStates(offset)

    def delete_records_before(self, offset: int) -> int:
        """Move log_start up to `offset` and drop the segments below it; returns log_start.

        OffsetOutOfRange above the high watermark.
        """
        if offset > self.high_watermark or offset < 0:
            raise OffsetOutOfRange(offset, self.log_start, self.high_watermark)
        if offset > self.log_start:
            self._settle()
            self._move_start(offset)
            self._drop_segments(self._reader.number_of(offset))
        return self.log_start

    def roll_if_due(self, now_ms: int) -> bool:
        """Begin a new segment if the active one is older than segment.ms.

        Compaction never touches the active segment, so max.compaction.lag.ms bounds its age too.
        """
        segment = self._segments[-1]
        if not segment.size or self.offline is not None:
            return False
        if self._active is None:
            self._activate(now_ms)
        if not segment.is_old(now_ms):
            return False
        self._settle()
        self._roll(self.log_end, now_ms)
        return True

    def replace_segments(self, old: Sequence[Segment], base: int, size: int) -> None:
        """Put one compacted segment, whose files end with `.swap` so far, in the place of `old`.

        `old` are neighbours, and the active segment is not among them. Readers of them finish
        undisturbed; their files go to the trash when the caller knows that the swap is on disk.
        """
        number = self._segments.index(old[0])
        new = Segment(self.folder, base, size, self.pool, self._limits)
        for segment in old:
            segment.rename_away()
        new.take_names(SWAP_SUFFIX)
        self._segments[number : number + len(old)] = [new]
        self._reader.forget()
        self._files_made += 1

    def delete_expired(self, now_ms: int) -> list[Deleted]:
        """Drop old segments by log_start, retention.bytes and retention.ms, as the policy says.

        Never one that holds the high watermark or anything above. The active segment is rolled
        first when it must go too.
        """
        if self.offline is not None:
            return []
        deleted = expired(
            self._segments, self._config, self.log_start, self.log_end, self.high_watermark, now_ms
        )
        if deleted:
            self._settle()
            if len(deleted) == len(self._segments):
                self._roll(self.log_end, now_ms)
            self._move_start(max(self.log_start, self._segments[len(deleted)].base))
            self._drop_segments(len(deleted))
        return deleted

    def _settle(self) -> None:
        if self.offline is not None:
            raise self.offline
        self.commit()

    def _move_start(self, offset: int) -> None:
        self.log_start = offset
        if self.flushed < offset:
            self.flushed = offset
        self.epochs.truncate_start(offset)

    def _drop_segments(self, count: int) -> None:
        """Drop the first `count` segments."""
        if not count:
            return
        for segment in self._segments[:count]:
            segment.retire(self.trash)
        del self._segments[:count]
        self._reader.forget()
        self._snapshots.remove_below(self._segments[0].base)

    def _shrunk_to(self, log_end: int) -> None:
        self.log_end = self._written = self._ends[self._end_place] = log_end
        self.log_start = min(self.log_start, log_end)
        self.flushed = min(self.flushed, log_end)
        self.high_watermark = min(self.high_watermark, log_end)
        self.clean_end = min(self.clean_end, log_end)
        self.epochs.truncate_end(log_end)
        self._active = None
        self._reader.forget()
        self._truncations += 1
