"""Index files: fixed-size entries, the newest of which are in memory."""

from __future__ import annotations

import os
import struct

from moldau.log.errors import CorruptFile, StorageError
from moldau.log.files.disk import remove_file
from moldau.log.files.open_files import INDEX_FLAGS, FilePool, OpenFile

# A bisection reads this many entries at once when they are all that is left to search.
_CHUNK = 256


class IndexFile:
    """Entries of integers that rise, as `entry` packs them; no header, no footer.

    Entries are added to a tail in memory, which goes to the file now and then, and when the segment
    is sealed; older ones are read by bisection. A crash loses the
    tail, or leaves an entry half written: recovery writes again what lies after the recovery point.
    The file is created when there is something to write. Added to on the event loop only; may be
    searched from any thread.
    """

    __slots__ = ("_tail", "count", "entry", "file", "path", "pool")

    def __init__(self, path: str, pool: FilePool, entry: struct.Struct) -> None:
        self.path = path
        self.pool = pool
        self.entry = entry
        self.file: OpenFile | None = None
        self.count = 0
        # (number of the first entry in memory, those entries); replaced as one, since other
        # threads read it.
        self._tail = (0, bytearray())

    def load(self) -> bool:
        """Take up what the file holds; False if there is no file, CorruptFile if it is torn."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        if size % self.entry.size:
            raise CorruptFile(self.path, f"{size} bytes are not a multiple of {self.entry.size}")
        self.count = size // self.entry.size
        self._tail = (self.count, bytearray())
        return True

    def open(self) -> OpenFile:
        file = self.file
        if file is None:
            file = self.pool.open(self.path, self, INDEX_FLAGS)
        file.used = True
        return file

    def rises(self) -> bool:
        """Do the first two columns never fall, over all entries? Reads the whole file."""
        try:
            previous = (-1, -1)
            for low in range(0, self.count, _CHUNK):
                for entry in self.entry.iter_unpack(self._read(low, min(_CHUNK, self.count - low))):
                    if entry[0] <= previous[0] or entry[1] < previous[1]:
                        return False
                    previous = entry
        except StorageError:
            return False
        return True

    def get(self, number: int) -> tuple[int, ...]:
        """Entry `number`, counted from 0."""
        start, tail = self._tail
        if number >= start:
            return self.entry.unpack_from(tail, (number - start) * self.entry.size)
        return self.entry.unpack(self._read(number, 1))

    def add(self, *values: int) -> None:
        self._tail[1].extend(self.entry.pack(*values))
        self.count += 1

    def search(self, column: int, value: int, low: int = 0) -> int:
        """Return the number of the last entry from `low` on whose `column` is at most `value`, or
        `low - 1`."""
        high = self.count
        start, tail = self._tail
        if low < start < high:
            # The newest entries are the most wanted, and cost no read.
            if self.entry.unpack_from(tail, 0)[column] <= value:
                low = start
            else:
                high = start
        if low >= start:
            return self._bisect(tail, start, column, value, low, high)
        if high - low > _CHUNK and low:
            # A caller that knows where to begin is a sequential reader, and looks just ahead.
            chunk = self._read(low, _CHUNK)
            if self.entry.unpack_from(chunk, len(chunk) - self.entry.size)[column] > value:
                return self._bisect(chunk, low, column, value, low, low + _CHUNK)
            low += _CHUNK
        while high - low > _CHUNK:
            middle = (low + high) // 2
            if self.get(middle)[column] <= value:
                low = middle + 1
            else:
                high = middle
        if high == low:
            return low - 1
        chunk = self._read(low, high - low)
        return self._bisect(chunk, low, column, value, low, high)

    def _bisect(
        self, data: bytes | bytearray, start: int, column: int, value: int, low: int, high: int
    ) -> int:
        size, unpack_from = self.entry.size, self.entry.unpack_from
        while low < high:
            middle = (low + high) // 2
            if unpack_from(data, (middle - start) * size)[column] <= value:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _read(self, number: int, count: int) -> bytes:
        file = self.open()
        size = self.entry.size
        try:
            data = os.pread(file.fd, count * size, number * size)
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        if len(data) != count * size:
            raise StorageError(self.path, f"the index ends before entry {number + count}")
        return data

    @property
    def is_stored(self) -> bool:
        """Are there entries in the file?"""
        return self._tail[0] > 0

    def write_tail(self) -> None:
        """Move what lies in memory to the file; StorageError if the disk refuses."""
        start, tail = self._tail
        if not tail:
            return
        file = self.open()
        position, view = start * self.entry.size, memoryview(bytes(tail))
        try:
            while view:
                written = os.pwrite(file.fd, view, position)
                position += written
                view = view[written:]
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        self._tail = (self.count, bytearray())

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self.count:
            return
        start, tail = self._tail
        if count >= start:
            del tail[(count - start) * self.entry.size :]
        else:
            file = self.open()
            try:
                os.ftruncate(file.fd, count * self.entry.size)
            except OSError as error:
                raise StorageError.of(self.path, error) from error
            self._tail = (count, bytearray())
        self.count = count

    def clear(self) -> None:
        """Begin anew, whatever the file holds."""
        self.pool.release(self)
        remove_file(self.path)
        self.count = 0
        self._tail = (0, bytearray())
