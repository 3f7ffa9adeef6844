"""Retention: deletes the oldest segments of a log. Event loop only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.log.config import LogConfig
from moldau.log.errors import OffsetOutOfRange
from moldau.log.log import Log
from moldau.log.segments.segment import Segment

_EMPTY = "empty"


class Deleted(NamedTuple):
    """A segment that is to go, and why."""

    base: int
    size: int
    reason: str


def delete_records_before(log: Log, offset: int) -> int:
    """Move log_start up to `offset` and drop the segments below it; returns log_start.

    OffsetOutOfRange above the high watermark.
    """
    if offset > log.high_watermark or offset < 0:
        raise OffsetOutOfRange(offset, log.log_start, log.high_watermark)
    if offset > log.log_start:
        log.commit()
        _move_start(log, offset)
    return log.log_start


def delete_expired(log: Log, now_ms: int) -> list[Deleted]:
    """Drop old segments by log_start, retention.bytes and retention.ms, as the policy says.

    Never one that holds the high watermark or anything above. The active segment is rolled first
    when it must go too.
    """
    if log.offline is not None:
        return []
    segments = log.segments
    deleted = expired(
        segments.all, log.config, log.log_start, log.log_end, log.high_watermark, now_ms
    )
    if deleted:
        log.commit()
        if len(deleted) == len(segments):
            log.roll(log.log_end, now_ms)
        _move_start(log, max(log.log_start, segments[len(deleted)].base))
    return deleted


def roll_if_due(log: Log, now_ms: int) -> bool:
    """Begin a new segment if the active one is older than segment.ms.

    Compaction never touches the active segment, so max.compaction.lag.ms bounds its age too.
    """
    segment = log.segments.last
    if not segment.size or log.offline is not None:
        return False
    if log.writer.active is None:
        log.writer.activate(now_ms)
    if not segment.is_old(now_ms):
        return False
    log.commit()
    log.roll(log.log_end, now_ms)
    return True


def _move_start(log: Log, offset: int) -> None:
    log.log_start = offset
    log.flushed = max(log.flushed, offset)
    log.epochs.truncate_start(offset)
    count = log.segments.number_of(offset)
    if count:
        log.segments.drop_first(count)
        log.reader.forget()
        log.snapshots.remove_below(log.segments.base)


def expired(
    segments: Sequence[Segment],
    config: LogConfig,
    log_start: int,
    log_end: int,
    high_watermark: int,
    now_ms: int,
) -> list[Deleted]:
    """Return the oldest segments that may be deleted now, without a gap.

    A segment goes when it lies below log_start, or, where the policy is to delete, when the log
    without it is still larger than retention.bytes, or when its newest record is older than
    retention.ms. One that reaches the high watermark or above stays, as does an empty last one.
    """
    deleted: list[Deleted] = []
    deletes = config.deletes
    excess = 0
    if deletes and config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        end = log_end if is_last else segments[number + 1].base
        if end > high_watermark or (is_last and not segment.size):
            break
        if end <= log_start and not is_last:
            reason = "before log start"
        elif deletes and not segment.size:
            # Compaction left nothing of it, so it is deleted together with its successor, or not at
            # all.
            reason = _EMPTY
        elif deletes and excess > 0 and excess >= segment.size:
            reason = "retention.bytes"
        elif (
            deletes
            and config.retention_ms >= 0
            and now_ms - segment.largest_timestamp > config.retention_ms
        ):
            reason = "retention.ms"
        else:
            break
        excess -= segment.size
        deleted.append(Deleted(segment.base, segment.size, reason))
    while deleted and deleted[-1].reason == _EMPTY:
        deleted.pop()
    return deleted
