"""Pieces of a response as they arrive: complete batches, about a megabyte at a time.

A piece is decoded and handed on while it is still in the processor's cache, and Java works at it
while the next one comes. Taking eight megabytes at once makes both wait for memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from moldau.arrow.decode import Scan, scan
from moldau.peer.fetch_stream import FetchStream
from moldau.records.batch import PREFIX_SIZE
from moldau.wire.primitives import INT32

PIECE_BYTES = 1 << 20


def pieces(stream: FetchStream, target_bytes: int = PIECE_BYTES) -> Iterator[Scan]:
    """Pieces in memory of their own, which may be written over; each has a batch at least.

    A batch that is cut short at the end of the answer is left out, as brokers may send it.
    """
    rest = memoryview(b"")
    batch_size = 0
    while stream.left:
        size = _room(batch_size, target_bytes)
        size = min(max(size, len(rest) + 1), len(rest) + stream.left)
        # Memory of Arrow's pool, which is used again sooner than fresh pages are touched.
        room = memoryview(pa.allocate_buffer(size)).cast("B")
        room[: len(rest)] = rest
        stream.fill(room[len(rest) :])
        found = scan(room, is_scratch=True)
        rest = room[found.size :]
        batch_size = _batch_size(rest)
        if stream.left and batch_size > len(rest) + stream.left:
            # It will not be read, but the receiver should know that it is the last piece.
            stream.fill(memoryview(bytearray(stream.left)))
        if found.size:
            yield found


def _batch_size(start: memoryview) -> int:
    """Return the size that a batch states; 0 if too little of it is there."""
    if len(start) < PREFIX_SIZE:
        return 0
    return int(INT32.unpack_from(start, 8)[0]) + PREFIX_SIZE


def _room(batch_size: int, target_bytes: int) -> int:
    """Return how much to take, before a batch of that size.

    What is left of a batch after the end of a piece is copied to the next one. So that this is
    little, a large batch is a piece of its own, with just enough to know how large the next one is.
    """
    return batch_size + PREFIX_SIZE if batch_size > target_bytes // 2 else target_bytes
