"""Which segments have outlived their topic's retention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.log.config import LogConfig
from moldau.log.segments.segment import Segment

_EMPTY = "empty"


class Deleted(NamedTuple):
    """A segment that is to go, and why."""

    base: int
    size: int
    reason: str


def expired(
    segments: Sequence[Segment],
    config: LogConfig,
    log_start: int,
    log_end: int,
    high_watermark: int,
    now_ms: int,
) -> list[Deleted]:
    """The oldest segments that may be deleted now, without a gap.

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
            # Compaction left nothing of it, so it goes along with what lies behind it, or not.
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
