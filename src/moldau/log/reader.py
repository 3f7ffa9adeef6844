"""The reader of a log: from offsets to slices of segment files."""

from __future__ import annotations

from moldau.log.files.open_files import Slice
from moldau.log.segments.batch_file import BatchFile
from moldau.log.segments.search import base_offset_at, find
from moldau.log.segments.segment import Segment
from moldau.log.segments.segments import Segments

_REMEMBERED = 16

# A segment, its file, the position of a batch there, and an index entry at or before that.
Place = tuple[Segment, BatchFile, int, int]


class Reader:
    """Finds whole batches in a log's segments. Event loop only.

    It remembers where recent reads ended, by the offset that follows, so that whoever reads on pays
    for no search: consumers at the tail, followers, and the high watermark that follows them.
    `following` is the offset after the last slice that was read.
    """

    __slots__ = ("_in_order", "_places", "_segments", "following")

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._in_order = segments.items
        self._places: dict[int, Place] = {}
        self.following = 0

    def forget(self) -> None:
        """Segments were cut or dropped: what is remembered may be wrong."""
        self._places.clear()

    def read(
        self, offset: int, max_bytes: int, up_to: int, written: int, whole_first: bool
    ) -> Slice | None:
        """See `Log.read`; `written` is where the last segment's written batches end."""
        places = self._places
        place = places.get(offset)
        if place is None or place[2] == place[1].size:
            place = self._search(offset)
            if place is None:
                return None
        segment, batches, start, hint = place
        if up_to == written and segment is self._in_order[-1]:
            stop = batches.size
            following = written
        else:
            stop, following = self._stop(segment, up_to)
        if stop - start > max_bytes:
            stop, following, hint = self._cut(
                segment, start, stop, max_bytes, whole_first, hint, following
            )
        if stop <= start:
            return None
        self.following = following
        if following not in places:
            if len(places) >= _REMEMBERED:
                del places[next(iter(places))]
            places[following] = (segment, batches, stop, hint)
        file = batches.file
        if file is None:
            file = batches.open()
        file.used = True
        return Slice(file, start, stop - start)

    def _search(self, offset: int) -> Place | None:
        for segment in self._in_order[self._segments.number_of(offset) :]:
            position, hint = find(segment, offset)
            batches = segment.batches
            if position < batches.size:
                return segment, batches, position, hint
        return None

    def _stop(self, segment: Segment, up_to: int) -> tuple[int, int]:
        """Return where `up_to` ends a read of the segment, and the offset that a next read begins
        with."""
        segments = self._in_order
        number = self._segments.number_of(segment.base) + 1
        if number < len(segments) and up_to >= segments[number].base:
            return segment.size, segments[number].base
        place = self._places.get(up_to)
        if place is not None and place[0] is segment:
            return place[2], up_to
        return find(segment, up_to)[0], up_to

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
        elif (base_offset := base_offset_at(segment, end, last)) is None:
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
