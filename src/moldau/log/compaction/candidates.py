"""Candidates: the logs that need compaction, and the job for each. Event loop only.

    log_start ... dirty_start ... cleanable_end ... high_watermark
      |  clean        |  dirty          |  too young, active or unstable: untouched

The clean part has one record a key at most. A round collects the keys of the dirty part and writes
both anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.log.compaction.job import Job
from moldau.log.log import Log
from moldau.log.segments.search import find
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
    """Return what compaction could do for a log that is clean before its `clean_end`; None if
    nothing.
    """
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
    """Return whether a segment that is not compacted yet begins with a record older than one may
    be."""
    if oldest_ms <= 0:
        return False
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if not segment.size or (following is not None and following.base <= dirty_start):
            continue
        position, _ = find(segment, dirty_start)
        for _, header in segment.batches.headers(position, segment.size):
            if 0 < header.max_timestamp < oldest_ms:
                return True
            break
    return False


def job_of(
    chosen: Candidate,
    tag: str,
    now_ms: int,
    map_bytes: int,
    bytes_per_second: float,
    broker_pid: int,
) -> Job:
    """Return the work that a candidate means, as a value that a worker can be sent.

    `tag` is unlike that of any other job.
    """
    log, config = chosen.log, chosen.log.config
    return Job(
        folder=log.folder,
        tag=tag,
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
