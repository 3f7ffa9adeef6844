"""Segment files on this machine, as a search reads them past the broker that writes them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import Self
from uuid import UUID

import numpy as np

from moldau.arrow.decode import Scan
from moldau.arrow.kernels import ATTRIBUTES, BASE_OFFSET
from moldau.arrow.pieces import PIECE_BYTES, pieces
from moldau.log.errors import LogError
from moldau.log.files.properties import PARTITION_METADATA, read_topic_id
from moldau.log.segments.index import ENTRY_SIZE
from moldau.log.segments.names import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_FILE, path_of
from moldau.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchError

_MARKED = CONTROL_BIT | TRANSACTIONAL_BIT


class SegmentFiles:
    """The files of one partition, whose leader is a broker on this machine.

    The caller has to have heard from that broker, as whoever searches, that offsets from `first` on
    may be read, and that everything before `until` is committed: that does not change any more,
    whatever becomes of the leader. What is not found here, or not as expected, is left to a fetch,
    and so are transactions: only the broker knows which ones are aborted.

    The files belong to the broker, which may remove or replace any of them at any time. An open one
    keeps its content. One that is opened belongs to the topic if the folder does so after that.
    """

    def __init__(self, folder: str, topic_id: UUID) -> None:
        self._folder = folder
        self._topic_id = topic_id

    def read(self, first: int, until: int, most_bytes: int) -> Iterator[Scan]:
        """Yield batches, in memory that may be written over, from the one with `first` on.

        They end before `until`, after about `most_bytes`, or where nothing more is found.
        """
        bases = self._bases()
        before = bisect_right(bases, first)
        for base in bases[before - 1 :] if before else ():
            # Where a segment begins somewhere else than the last one ended, one may be missing.
            if base not in (bases[before - 1], first) or base >= until:
                return
            try:
                with _Segment(self._folder, base, first) as segment:
                    if read_topic_id(f"{self._folder}/{PARTITION_METADATA}") != self._topic_id:
                        return
                    for number, piece in enumerate(pieces(segment, PIECE_BYTES)):
                        if most_bytes <= 0 or not _is_plain(piece, until):
                            return
                        if not number and segment.begun and piece.table[0, BASE_OFFSET] > first:
                            # Compaction has replaced the log after the index was read.
                            return
                        most_bytes -= piece.size
                        first = piece.next_offset
                        yield piece
            except (OSError, LogError, BatchError):
                return

    def _bases(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        found = (SEGMENT_FILE.fullmatch(name) for name in names)
        return sorted(int(each[1]) for each in found if each and each[2] == LOG_SUFFIX)


def _is_plain(piece: Scan, until: int) -> bool:
    """Return whether a piece is committed, in order, and in no transaction."""
    table = piece.table
    # No checksum covers the base offsets.
    return (
        piece.next_offset <= until
        and bool(np.all(np.diff(table[:, BASE_OFFSET]) > 0))
        and not np.any(table[:, ATTRIBUTES] & _MARKED)
    )


class _Segment:
    """A segment file from the indexed batch before an offset on, as `pieces` takes it."""

    def __init__(self, folder: str, base: int, first: int) -> None:
        position = _position(path_of(folder, base, INDEX_SUFFIX), first - base)
        self._fd = os.open(path_of(folder, base, LOG_SUFFIX), os.O_RDONLY | os.O_CLOEXEC)
        self.begun = self._position = position
        self.left = max(0, os.fstat(self._fd).st_size - position)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        os.close(self._fd)

    def fill(self, room: memoryview) -> None:
        while len(room):
            count = os.preadv(self._fd, [room], self._position)
            if not count:
                raise OSError("the file has become shorter")
            self._position += count
            self.left -= count
            room = room[count:]


def _position(path: str, delta: int) -> int:
    """Return where the last indexed batch that ends before an offset begins."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return 0
    count = len(content) // ENTRY_SIZE
    entries = np.frombuffer(content, ">i4", 2 * count).reshape(-1, 2)
    number = int(np.searchsorted(entries[:, 0], delta))
    return int(entries[number - 1, 1]) if number else 0
