"""Batches of aborted transactions. Any thread; blocks."""

from __future__ import annotations

from collections.abc import Iterable

from moldau.log.segments.segment import Segment
from moldau.records.batch import BatchHeader
from moldau.records.record import read_end_marker


class AbortedBatches:
    """Found by reading the headers of segments up to the markers that end their transactions.

    An aborted record must not take the place of an older one of its key: who reads committed
    records only would see neither.
    """

    def __init__(self, segments: Iterable[Segment], first_offset: int) -> None:
        # Producer id to (first offset, offset of the marker).
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        begun: dict[int, int] = {}
        for segment in segments:
            if not segment.size:
                continue
            for position, header in segment.batches.headers(0, segment.size):
                if header.last_offset < first_offset or not header.is_transactional:
                    continue
                if not header.count:
                    # The marker of what compaction left of a transaction may be gone.
                    continue
                producer_id = header.producer_id
                if not header.is_control:
                    begun.setdefault(producer_id, header.base_offset)
                    continue
                marker = read_end_marker(segment.batches.read(position, header.size))
                start = begun.pop(producer_id, None) if marker is not None else None
                if start is not None and marker is not None and not marker.commits:
                    span = (start, header.base_offset)
                    self._ranges.setdefault(producer_id, []).append(span)

    def has(self, header: BatchHeader) -> bool:
        """Return whether the batch of data with that header was aborted."""
        if not header.is_transactional:
            return False
        return any(
            first <= header.base_offset < marker
            for first, marker in self._ranges.get(header.producer_id, ())
        )
