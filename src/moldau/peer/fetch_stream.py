"""Fetch streams: the response to a fetch of one partition, read while it arrives."""

from __future__ import annotations

from collections.abc import Callable

from moldau.wire.fetch.response import FetchedPartition


class FetchStream:
    """First what the broker says, then the records, as much at a time as the caller has room for.

    `partition` is all but the records, which have `size` bytes; `left` of them are not taken yet.
    `first` are those that came along with it, `take` fills memory with what follows, and `finish`
    is called after the last of them. The connection is of nobody else's use until then.
    """

    def __init__(
        self,
        partition: FetchedPartition,
        size: int,
        first: memoryview,
        take: Callable[[memoryview], None],
        finish: Callable[[], None],
    ) -> None:
        self.partition = partition
        self.size = self.left = size
        self._first = first
        self._take = take
        self._finish = finish
        if not size:
            finish()

    def fill(self, room: memoryview) -> None:
        """Fill `room`, which may not be larger than what is left, with what comes next."""
        if not len(room):
            return
        here = min(len(self._first), len(room))
        room[:here] = self._first[:here]
        self._first = self._first[here:]
        if here < len(room):
            self._take(room[here:])
        self.left -= len(room)
        if not self.left:
            self._finish()
