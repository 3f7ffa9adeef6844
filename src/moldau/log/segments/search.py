"""Search in a segment: from an offset to the position of a batch. Any thread; may block.

An index that does not match the log is rebuilt on the way.
"""

from __future__ import annotations

import logging

from moldau.log.segments.segment import Segment

logger = logging.getLogger("moldau.log")


def find(segment: Segment, offset: int) -> tuple[int, int]:
    """(position, index entry) of the first batch whose last offset is at least `offset`.

    The position is the segment's size if there is none. The entry lies at or before that position.
    """
    batches = segment.batches
    size = batches.size
    last, position, number = segment.indexes.offsets.lookup(offset) if size else (-1, 0, 0)
    if last >= 0 and base_offset_at(segment, position, last) is None:
        segment.reindex()
        _, position, number = segment.indexes.offsets.lookup(offset)
    for at, header in batches.headers(position, size):
        if header.last_offset >= offset:
            return at, number
    return size, number


def end_before(segment: Segment, offset: int) -> tuple[int, int]:
    """(position, offset) where the batches that end before `offset` end."""
    position, _ = find(segment, offset)
    _, indexed, _ = segment.indexes.offsets.lookup(offset - 1)
    end = segment.base
    for _, header in segment.batches.headers(indexed, position):
        end = header.last_offset + 1
    return position, end


def base_offset_at(segment: Segment, position: int, last_offset: int) -> int | None:
    """Return the base offset of the batch at `position`; None, and a word in the log, if that is
    not the batch that ends with `last_offset`, as the index has it."""
    found = segment.batches.range_at(position)
    if found is not None and found[1] == last_offset:
        return found[0]
    logger.warning("rebuilding the index of %s: it does not match the log", segment.path)
    return None
