"""The sparse time index of a segment."""

from __future__ import annotations

import struct

from moldau.log.errors import CorruptFile
from moldau.log.files.open_files import FilePool
from moldau.log.segments.index_file import IndexFile

_ENTRY = struct.Struct(">qi")
ENTRY_SIZE = _ENTRY.size


class TimeIndex(IndexFile):
    """`<base offset>.timeindex`: how timestamps grew along the segment.

    An entry is 12 bytes: the largest timestamp so far, and the last offset, less the segment's base
    offset, of the batch that has it. No batch up to that offset is newer. Timestamps rise from
    entry to entry, offsets do not fall. A closed segment's last entry is its largest timestamp.
    """

    __slots__ = ("_newest", "base")

    def __init__(self, path: str, pool: FilePool, base: int) -> None:
        super().__init__(path, pool, _ENTRY)
        self.base = base
        # How many entries there are, and the timestamp of the last one, as of the last `append`.
        self._newest = (0, -1)

    def check(self) -> None:
        """CorruptFile unless the last entries rise."""
        if not self.count:
            return
        timestamp, delta = self.get(self.count - 1)
        before = self.get(self.count - 2) if self.count > 1 else (-1, 0)
        if not (before[0] < timestamp and before[1] <= delta):
            raise CorruptFile(self.path, f"the last entry is ({timestamp}, {delta})")

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if there is none."""
        return self._entry(self.count - 1)

    def append(self, timestamp: int, offset: int) -> None:
        """Note the largest timestamp so far; nothing happens if it is not larger than the last."""
        count, newest = self._newest
        if count != self.count:
            newest = self.last[0]
        if timestamp > newest:
            self.add(timestamp, offset - self.base)
            self._newest = (self.count, timestamp)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry that is not newer; (-1, base) if there is none."""
        return self._entry(self.search(0, timestamp))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries that name `offset` or above."""
        self.truncate(self.before(offset)[0])

    def before(self, offset: int) -> tuple[int, int, int]:
        """(their number, timestamp and offset of the last) of the entries that name offsets below
        this one."""
        number = self.search(1, offset - 1 - self.base)
        return number + 1, *self._entry(number)

    def _entry(self, number: int) -> tuple[int, int]:
        if number < 0:
            return -1, self.base
        timestamp, delta = self.get(number)
        return timestamp, self.base + delta
