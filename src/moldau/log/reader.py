"""From offsets to slices of segment files."""

from __future__ import annotations

from bisect import bisect_right

from moldau.log.files.open_files import Slice
from moldau.log.segments.segment import Segment

_REMEMBERED = 16

# A segment, the position of a batch in it, and an entry of its offset index at or before that.
Place = tuple[Segment, int, int]


class Reader:
    """Finds whole batches in a log's segments. Event loop only.

    It remembers where recent reads ended, by the offset that follows, so that whoever reads on pays
    for no search: consumers at the tail, followers, and the high watermark that follows them.
    """

    __slots__ = ("_places", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        # The log's own list, which it changes in place.
        self._segments = segments
        self._places: dict[int, Place] = {}

    def forget(self) -> None:
        """Segments were cut or dropped: what is remembered may be wrong."""
        self._places.clear()

    def read(
        self, offset: int, max_bytes: int, up_to: int, written: int, whole_first: bool
    ) -> Slice | None:
        """See `Log.read`; `written` is where the last segment's written batches end."""
        places = self._places
        place = places.get(offset)
        if place is None or place[1] == place[0].batches.size:
            place = self._search(offset)
            if place is None:
                return None
        segment, start, hint = place
        if up_to == written and segment is self._segments[-1]:
            stop = segment.batches.size
            following = written
        else:
            stop, following = self._stop(segment, up_to)
        if stop - start > max_bytes:
            stop, following, hint = self._cut(
                segment, start, stop, max_bytes, whole_first, hint, following
            )
        if stop <= start:
            return None
        if following not in places:
            if len(places) >= _REMEMBERED:
                del places[next(iter(places))]
            places[following] = (segment, stop, hint)
        batches = segment.batches
        file = batches.file
        if file is None:
            file = batches.open()
        file.used = True
        return Slice(file, start, stop - start)

    def number_of(self, offset: int) -> int:
        """The number of the segment that `offset` falls into."""
        return max(0, bisect_right(self._segments, offset, key=_base_of) - 1)

    def _search(self, offset: int) -> Place | None:
        for segment in self._segments[self.number_of(offset) :]:
            position, hint = segment.find(offset)
            if position < segment.batches.size:
                return segment, position, hint
        return None

    def _stop(self, segment: Segment, up_to: int) -> tuple[int, int]:
        """Where `up_to` ends a read of the segment, and the offset that a next read begins with."""
        segments = self._segments
        number = self.number_of(segment.base) + 1
        if number < len(segments) and up_to >= segments[number].base:
            return segment.size, segments[number].base
        place = self._places.get(up_to)
        if place is not None and place[0] is segment:
            return place[1], up_to
        return segment.find(up_to)[0], up_to

    def _cut(
        self,
        segment: Segment,
        start: int,
        stop: int,
        max_bytes: int,
        whole_first: bool,
        hint: int,
        following: int,
    ) -> tuple[int, int, int]:
        """(where to stop within `max_bytes`, the offset that follows, index entry).

        The index knows the boundaries of some batches. When it leads less than half the way, the
        rest is walked from header to header, which is then not far.
        """
        limit = min(start + max_bytes, stop)
        last, end, hint = segment.indexes.offsets.boundary(limit, hint)
        if end <= start:
            end = start
        elif (base_offset := segment.base_offset_at(end, last)) is None:
            segment.reindex()
            end = start
            hint = 0
        elif end - start >= max_bytes // 2:
            return end, base_offset if end < stop else following, hint
        for position, header in segment.batches.headers(end, stop):
            if position + header.size > limit and not (position == start and whole_first):
                return position, header.base_offset, hint
            end = position + header.size
        return end, following, hint


def _base_of(segment: Segment) -> int:
    return segment.base
