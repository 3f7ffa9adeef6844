"""Which logs want compaction, and how a worker's result takes its place. Event loop only.

    log_start ... dirty_start ... cleanable_end ... high_watermark
      |  clean        |  dirty          |  too young, active or unstable: untouched

The clean part has one record a key at most. A round collects the keys of the dirty part and writes
both anew. Crash safety is in the names: `.cleaned` files are unfinished and are thrown away by the
next start; `.swap` files are whole and replace what they cover.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from moldau.log.compaction.job import CLEANED_SUFFIXES, Job, Outcome
from moldau.log.errors import StorageError
from moldau.log.files.disk import remove_file, rename_file, sync_folder
from moldau.log.log import Log
from moldau.log.segments.names import CLEANED_SUFFIX, SWAP_SUFFIX
from moldau.log.segments.segment import Segment


class Candidate(NamedTuple):
    """A log that could be compacted now. `is_due` also when a record has waited for too long."""

    log: Log
    segments: tuple[Segment, ...]
    dirty_start: int
    end: int
    dirty_ratio: float
    is_due: bool


def candidate(log: Log, now_ms: int) -> Candidate | None:
    """What compaction could do for a log that is clean before its `clean_end`; None if nothing."""
    config = log.config
    if not config.compacts or log.offline is not None:
        return None
    # A crash may have cut the log below what was clean once.
    is_cut = log.clean_end > log.log_end
    dirty_start = log.log_start if is_cut else max(log.clean_end, log.log_start)
    segments = []
    clean_bytes = dirty_bytes = 0
    newest_allowed = now_ms - config.min_compaction_lag_ms
    # Recovery takes a gap in what was not flushed for a lost tail, so only flushed data is touched.
    stable = min(log.last_stable, log.high_watermark, log.flushed)
    end = dirty_start
    sealed = log.segments[:-1]
    for segment, following in zip(sealed, log.segments[1:], strict=True):
        is_dirty = following.base > dirty_start
        if following.base > stable:
            break
        if is_dirty and config.min_compaction_lag_ms and segment.largest_timestamp > newest_allowed:
            break
        segments.append(segment)
        if is_dirty:
            dirty_bytes += segment.size
            end = following.base
        else:
            clean_bytes += segment.size
    if end <= dirty_start or not dirty_bytes:
        return None
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    is_due = ratio > config.min_cleanable_dirty_ratio or _waits_too_long(
        segments, dirty_start, now_ms - config.max_compaction_lag_ms
    )
    return Candidate(log, tuple(segments), dirty_start, end, ratio, is_due)


def _waits_too_long(segments: Sequence[Segment], dirty_start: int, oldest_ms: int) -> bool:
    """Whether a segment that is not compacted yet begins with a record older than one may be."""
    if oldest_ms <= 0:
        return False
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if not segment.size or (following is not None and following.base <= dirty_start):
            continue
        position, _ = segment.find(dirty_start)
        for _, header in segment.batches.headers(position, segment.size):
            if 0 < header.max_timestamp < oldest_ms:
                return True
            break
    return False


def job_of(
    chosen: Candidate, now_ms: int, map_bytes: int, bytes_per_second: float, broker_pid: int
) -> Job:
    """The work that a candidate means, as a value that a worker can be sent."""
    log, config = chosen.log, chosen.log.config
    return Job(
        folder=log.folder,
        tag=uuid.uuid4().hex[:8],
        segments=[(segment.base, segment.size) for segment in chosen.segments],
        later=[(segment.base, segment.size) for segment in log.segments[len(chosen.segments) :]],
        dirty_start=chosen.dirty_start,
        end=chosen.end,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        map_bytes=map_bytes,
        bytes_per_second=bytes_per_second,
        producers=[
            (number, each.epoch, [batch.last_offset for batch in each.batches])
            for number, each in log.producers.producers.items()
        ],
        broker_pid=broker_pid,
    )


class Swap:
    """Puts new segments in the place of old ones, in steps that any crash may come between.

    `begin` names the new files `.swap`; when that is on disk, and the recovery point says that all
    of it was flushed, `finish` puts them in place; when that is on disk too, `sweep` lets the old
    files go. Readers of the old segments are not disturbed. `begin` and `finish` answer False, and
    leave no trace, if the log has changed meanwhile; a StorageError from `finish` leaves the log
    fit only for recovery.
    """

    def __init__(self, chosen: Candidate, job: Job, outcome: Outcome) -> None:
        self._log = chosen.log
        self._segments = chosen.segments
        self._sizes = [segment.size for segment in chosen.segments]
        self._ending = job.suffix
        self._outcome = outcome

    def begin(self) -> bool:
        """Event loop. Few renames."""
        if not self._is_unchanged():
            self._remove(self._ending)
            return False
        # The oldest first, and of each the log first: a start takes `.swap` files for unfinished if
        # any `.cleaned` file is as old.
        try:
            for stem, suffix in self._names():
                rename_file(f"{stem}{suffix}{self._ending}", f"{stem}{suffix}{SWAP_SUFFIX}")
        except StorageError:
            self.cancel()
            raise
        return True

    def cancel(self) -> None:
        """Event loop. Instead of `finish`: removes the new files."""
        self._remove(SWAP_SUFFIX)
        self._remove(self._ending)

    def sync(self) -> None:
        """Any thread. After `begin` and after `finish`: makes the new names durable."""
        try:
            sync_folder(self._log.folder)
        except OSError as error:
            raise StorageError.of(self._log.folder, error) from error

    def finish(self) -> bool:
        """Event loop. Few renames."""
        if not self._is_unchanged():
            self.cancel()
            return False
        by_base = {segment.base: segment for segment in self._segments}
        for cleaned in self._outcome.cleaned:
            old = [by_base[base] for base in cleaned.replaces]
            self._log.segments.replace(old, cleaned.base, cleaned.size)
        self._log.reader.forget()
        self._log.clean_end = self._outcome.end
        return True

    def sweep(self) -> None:
        """Event loop."""
        replaced = {base for cleaned in self._outcome.cleaned for base in cleaned.replaces}
        for segment in self._segments:
            if segment.base in replaced:
                segment.throw_away(self._log.segments.trash)

    def _is_unchanged(self) -> bool:
        log = self._log
        return log.offline is None and is_unchanged(log, self._segments, self._sizes)

    def _names(self) -> list[tuple[str, str]]:
        return [
            (f"{self._log.folder}/{cleaned.base:020d}", suffix)
            for cleaned in self._outcome.cleaned
            for suffix in CLEANED_SUFFIXES
        ]

    def _remove(self, ending: str) -> None:
        for stem, suffix in self._names():
            remove_file(f"{stem}{suffix}{ending}")


def swap(chosen: Candidate, job: Job, outcome: Outcome) -> bool:
    """The whole of a `Swap` at once; blocks."""
    steps = Swap(chosen, job, outcome)
    if not steps.begin():
        return False
    steps.sync()
    if not steps.finish():
        return False
    steps.sync()
    steps.sweep()
    return True


def is_unchanged(log: Log, segments: Sequence[Segment], sizes: Sequence[int]) -> bool:
    """Whether the log still has these segments, with these sizes, and does not write to them."""
    there = {segment.base: segment for segment in log.segments[:-1]}
    return all(
        there.get(segment.base) is segment and segment.size == size
        for segment, size in zip(segments, sizes, strict=True)
    )


def remove_leftovers(folder: str) -> None:
    """Removes what a worker that failed has written."""
    try:
        names = os.listdir(folder)
    except OSError:
        # The topic was deleted meanwhile, and its folder with it.
        return
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            remove_file(f"{folder}/{name}")
