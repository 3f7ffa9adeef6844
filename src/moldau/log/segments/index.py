"""The sparse offset index of a segment."""

from __future__ import annotations

import struct

from moldau.log.errors import CorruptFile
from moldau.log.files.open_files import FilePool
from moldau.log.segments.index_file import IndexFile

_ENTRY = struct.Struct(">ii")
ENTRY_SIZE = _ENTRY.size


class OffsetIndex(IndexFile):
    """`<base offset>.index`: where in the segment some of its batches begin.

    An entry is 8 bytes: a batch's last offset less the segment's base offset, and the position of
    that batch in the `.log` file. Both rise from entry to entry.
    """

    __slots__ = ("base",)

    def __init__(self, path: str, pool: FilePool, base: int) -> None:
        super().__init__(path, pool, _ENTRY)
        self.base = base

    def check(self, log_size: int) -> None:
        """CorruptFile unless the last entries rise and point into a log of `log_size` bytes."""
        if not self.count:
            return
        delta, position = self.get(self.count - 1)
        before = self.get(self.count - 2) if self.count > 1 else (-1, -1)
        if not (before[0] < delta and before[1] < position < log_size):
            raise CorruptFile(self.path, f"the last entry is ({delta}, {position})")

    def append(self, last_offset: int, position: int) -> None:
        """Note that the batch ending with `last_offset` begins at `position`."""
        self.add(last_offset - self.base, position)

    def lookup(self, offset: int) -> tuple[int, int, int]:
        """(last offset, position, entry number) of the last entry at or before `offset`.

        (-1, 0, 0) if there is none: begin at the start of the segment.
        """
        number = self.search(0, offset - self.base)
        if number < 0:
            return -1, 0, 0
        delta, position = self.get(number)
        return self.base + delta, position, number

    @property
    def last_position(self) -> int:
        """Where the last indexed batch begins; 0 if there is none."""
        return self.get(self.count - 1)[1] if self.count else 0

    def boundary(self, limit: int, hint: int) -> tuple[int, int, int]:
        """(last offset, position, entry number) of the last indexed batch at or before `limit`.

        (-1, 0, 0) if there is none. `hint` is the number of an entry at or before `limit`, or 0: a
        sequential reader hands back what the previous call gave it.
        """
        number = self.search(1, limit, min(hint, self.count))
        if number < 0:
            return -1, 0, 0
        delta, position = self.get(number)
        return self.base + delta, position, number

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches whose last offset is `offset` or above."""
        self.truncate(self.search(0, offset - 1 - self.base) + 1)
