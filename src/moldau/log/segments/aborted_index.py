"""The index of aborted transactions of a segment."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from moldau.log.errors import CorruptFile, StorageError
from moldau.log.files.open_files import FilePool
from moldau.log.segments.index_file import IndexFile

# version, producer id, first offset, offset of the marker, last stable offset
_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_VERSION = 0
_LAST = 3
_CHUNK = 64


def unpack_entries(content: bytes) -> Iterator[tuple[int, ...]]:
    """Return a file's whole entries: version, producer id, first, last and last stable offset."""
    return _ENTRY.iter_unpack(content[: len(content) // ENTRY_SIZE * ENTRY_SIZE])


class AbortedTransaction(NamedTuple):
    """A transaction whose records are skipped by whoever reads committed ones only.

    `last_offset` is that of the marker, `last_stable` where the next open transaction began when
    the marker was written, or what follows the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable: int


class AbortedIndex(IndexFile):
    """`<base offset>.txnindex`: the aborted transactions whose markers lie in the segment.

    An entry is Kafka's, 34 bytes: version 0, producer id, first offset, last offset, last stable
    offset. Last offsets rise from entry to entry, last stable ones do not fall. The transaction may
    have begun in an earlier segment.

    What is missing here would show aborted records to readers, so that unlike the other indexes it
    is written with the marker and forced to disk with the segment. A crash in between leaves a
    marker without its entry, after the recovery point: recovery makes the entries from there on
    anew. A segment without aborted transactions has no such file. Added to on the event loop only;
    may be searched from any thread.
    """

    __slots__ = ("base", "is_named", "last_marker")

    def __init__(self, path: str, pool: FilePool, base: int) -> None:
        super().__init__(path, pool, _ENTRY)
        self.base = base
        # The last offset of the last entry.
        self.last_marker = -1
        # Whether it is known that the folder has the file's name on disk, or soon will.
        self.is_named = False

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return self.count * ENTRY_SIZE

    def load(self) -> bool:
        """Take up what the file holds; False if there is no file, CorruptFile if it is damaged at
        its end."""
        is_there = super().load()
        self.is_named = is_there
        if is_there:
            self._find_last()
        return is_there

    def check(self, end: int, *, thoroughly: bool = True) -> None:
        """CorruptFile unless the last entry, or every one, can be that of a segment that ends
        before `end`."""
        last = self.base - 1
        try:
            for entry in self._entries(0) if thoroughly else ():
                self._check(entry, last)
                last = entry[_LAST]
        except StorageError as error:
            raise CorruptFile(self.path, error.reason) from error
        if self.last_marker >= end:
            reason = f"a marker at {self.last_marker}, but the segment ends at {end}"
            raise CorruptFile(self.path, reason)

    def _check(self, entry: tuple[int, ...], before: int) -> None:
        version, producer_id, first, last, last_stable = entry
        if (
            version != _VERSION
            or producer_id < 0
            or not 0 <= first < last
            or last <= before
            or not 0 <= last_stable <= last + 1
        ):
            raise CorruptFile(self.path, f"an entry is {entry}")

    def append(self, aborted: AbortedTransaction) -> None:
        """Note a transaction; its marker follows all others so far."""
        self.add(_VERSION, *aborted)
        self.last_marker = aborted.last_offset

    def collect(self, first: int, up_to: int, found: list[tuple[int, int]]) -> bool:
        """Add to `found` the (producer id, first offset) of transactions that overlap the range.

        True when later segments hold no more of them.
        """
        if first > self.last_marker:
            # Readers at the log's end, which is where nearly all of them are.
            return False
        for entry in self._entries(self.search(_LAST, first - 1) + 1):
            _, producer_id, begun, _, last_stable = entry
            if begun < up_to:
                found.append((producer_id, begun))
            if last_stable >= up_to:
                return True
        return False

    def transactions(self) -> Iterator[AbortedTransaction]:
        """Yield all of them."""
        for entry in self._entries(0):
            yield AbortedTransaction(*entry[1:])

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose markers lie at `offset` or above."""
        self.truncate(self.search(_LAST, offset - 1) + 1)
        self._find_last()

    def _find_last(self) -> None:
        self.last_marker = -1
        if self.count:
            entry = self.get(self.count - 1)
            self._check(entry, self.base - 1)
            self.last_marker = entry[_LAST]

    def _entries(self, number: int) -> Iterator[tuple[int, ...]]:
        """Entries from `number` on."""
        start, tail = self._tail
        while number < start:
            count = min(_CHUNK, start - number)
            yield from self.entry.iter_unpack(self._read(number, count))
            number += count
        yield from self.entry.iter_unpack(bytes(tail[(number - start) * ENTRY_SIZE :]))
