"""Scratch memory: large buffers whose pages are allocated when written, and released piece by
piece.

A bytearray of 100 MB is zeroed when it is made and unmapped when it goes, and either takes longer
than an event loop may be held.
"""

from __future__ import annotations

import mmap

_LARGE = 1 << 20
_PIECE = 4 << 20

Scratch = bytearray | mmap.mmap


def scratch(size: int) -> Scratch:
    """Return a writable buffer of `size` bytes."""
    return bytearray(size) if size < _LARGE else mmap.mmap(-1, size)


def give_back(buffer: Scratch, position: int) -> int:
    """Give back a piece of a buffer that nobody reads any more; the position after it."""
    size = min(_PIECE, len(buffer) - position)
    # Where the system does not know how, all of it goes at once when the buffer does.
    if isinstance(buffer, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        buffer.madvise(mmap.MADV_DONTNEED, position, size)
    return position + size
