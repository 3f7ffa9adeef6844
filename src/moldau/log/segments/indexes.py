"""The two indexes of a segment, kept in step with each other."""

from __future__ import annotations

import logging

from moldau.log.errors import CorruptFile
from moldau.log.files.open_files import FilePool
from moldau.log.segments.index import ENTRY_SIZE as OFFSET_ENTRY
from moldau.log.segments.index import OffsetIndex
from moldau.log.segments.time_index import ENTRY_SIZE as TIME_ENTRY
from moldau.log.segments.time_index import TimeIndex

logger = logging.getLogger("moldau.log")

# Entries go to their files when this many are in memory.
TAIL_ENTRIES = 512


class Indexes:
    """`offsets` and `times` of one segment.

    Where there is an offset entry, the time index knows the largest timestamp up to there; a sealed
    segment's time index also ends with the largest of all. Entries are added when a batch is
    appended and go to their files after the batch has: an index never knows more than the log. It
    is there to save reading, and rebuilt from the batches where it is missing or wrong.

    Changed on the event loop only; may be searched from any thread.
    """

    __slots__ = ("offsets", "pool", "times", "unwritten")

    def __init__(self, offsets_path: str, times_path: str, pool: FilePool, base: int) -> None:
        self.offsets = OffsetIndex(offsets_path, pool, base)
        self.times = TimeIndex(times_path, pool, base)
        self.pool = pool
        # Entries added since the last `write`.
        self.unwritten = 0

    def load(self, log_size: int) -> bool:
        """Take up the files; False if one is missing, or cannot be right for such a log."""
        try:
            is_complete = self.offsets.load() and self.times.load()
            self.offsets.check(log_size)
            self.times.check()
        except CorruptFile as error:
            logger.warning("rebuilding a damaged index: %s", error)
            return False
        return is_complete

    def add(self, last_offset: int, position: int, timestamp: int, timestamp_offset: int) -> None:
        """Note a batch, and the largest timestamp up to it with the offset that has it."""
        self.offsets.append(last_offset, position)
        self.times.append(timestamp, timestamp_offset)
        self.unwritten += 1

    def is_full(self, max_bytes: int) -> bool:
        """Is there room for no more entries? The time index keeps one for when it is sealed."""
        return (
            self.offsets.count >= max_bytes // OFFSET_ENTRY
            or self.times.count >= max_bytes // TIME_ENTRY - 1
        )

    def rise(self) -> bool:
        """Are all entries in order? Reads both files whole."""
        return self.offsets.rises() and self.times.rises()

    def seal(self, timestamp: int, timestamp_offset: int) -> None:
        """Write all entries out, with a final one for the largest timestamp, if there are any."""
        if not self.offsets.count:
            return
        if timestamp >= 0:
            self.times.append(timestamp, timestamp_offset)
        self.write()

    def write(self) -> None:
        """Move what lies in memory to the files; StorageError if the disk refuses."""
        self.offsets.write_tail()
        self.times.write_tail()
        self.unwritten = 0

    def truncate_to(self, offset: int) -> None:
        """Forget batches whose last offset is `offset` or above."""
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)

    def truncate(self, offset_entries: int, time_entries: int) -> None:
        """Keep the first so many entries."""
        self.offsets.truncate(offset_entries)
        self.times.truncate(time_entries)

    def clear(self) -> None:
        """Begin anew, whatever the files hold."""
        self.offsets.clear()
        self.times.clear()
        self.unwritten = 0

    def release(self) -> None:
        """Let go of the open files."""
        self.pool.release(self.offsets)
        self.pool.release(self.times)

    def renamed(self, suffix: str) -> None:
        """The files are found under names with this suffix from now on."""
        self.offsets.path += suffix
        self.times.path += suffix
