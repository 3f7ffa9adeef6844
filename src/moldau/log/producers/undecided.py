"""Undecided transactions: those whose marker may still be lost, found again when a log is opened.

Any thread; blocks.
"""

from __future__ import annotations

from moldau.log.producers.replay import rebuild_producers
from moldau.log.producers.snapshots import Snapshots
from moldau.log.producers.states import ProducerStates
from moldau.log.segments.search import find
from moldau.log.segments.segments import Segments


def hold_undecided(
    producers: ProducerStates, segments: Segments, snapshots: Snapshots, high_watermark: int
) -> ProducerStates:
    """Return the state of producers with the transactions that markers at the high watermark or
    above have ended.

    Snapshots do not tell of them, and a state that was read from one takes them for stable. So they
    are looked for in the log, if it has markers that not every in-sync replica is known to have.
    """
    end = producers.end
    has_markers = any(each.coordinator_epoch >= 0 for each in producers.producers.values())
    if not has_markers or not _has_marker(segments, high_watermark, end):
        return producers
    held = rebuild_producers(segments.all, snapshots.before(high_watermark, segments.base), end)
    held.replicated_to(high_watermark)
    return held


def _has_marker(segments: Segments, first: int, end: int) -> bool:
    if first >= end:
        return False
    for segment in segments.from_offset(first):
        position, _ = find(segment, max(first, segment.base))
        for _, header in segment.batches.headers(position, segment.size):
            if header.base_offset >= end:
                return False
            if header.is_control and header.base_offset >= first:
                return True
    return False
