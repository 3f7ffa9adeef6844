"""The page cache: whether it holds a slice of a file, and how it comes to hold it.

Reading or sending what it does not hold blocks whoever does it, which must not be the event loop.
"""

from __future__ import annotations

import os

from moldau.log.files.open_files import Slice

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_READ_CHUNK = 128 << 10


def is_warm(descriptor: int, position: int, size: int) -> bool:
    """Return whether the page cache holds both ends and the middle; True where that can't be
    asked."""
    if not _NOWAIT:
        return True
    byte = [bytearray(1)]
    try:
        for place in (position, position + size // 2, position + size - 1):
            os.preadv(descriptor, byte, place, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        # A file system that does not know the flag.
        return True
    return True


def warm(piece: Slice) -> None:
    """Read a slice into the page cache; runs on a thread and may block there."""
    file, position, size = piece
    scratch = [bytearray(min(size, _READ_CHUNK))]
    end = position + size
    while position < end:
        got = os.preadv(file.fd, scratch, position)
        if got == 0:
            return
        position += got
