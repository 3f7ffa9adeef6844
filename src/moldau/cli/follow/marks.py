"""A place in a file, and how that file is known again.

A name does not do: rotation changes it. Nor does an inode number alone: it is given to a new file
as soon as the old one is gone, and it stays when a file is cut to nothing and written anew. So a
file counts as the same when its first bytes, and the last ones before the place, are the same.
"""

from __future__ import annotations

import hashlib
import os

import msgspec

HEAD_BYTES = 1024
TAIL_BYTES = 256


class Marks(msgspec.Struct, frozen=True):
    """Fingerprints of what lies before `position`: its first bytes and its last ones."""

    position: int
    head: str
    tail: str

    @classmethod
    def of(cls, position: int, head: bytes, tail: bytes) -> Marks:
        """Marks from bytes that were read; `head` may reach beyond the position."""
        return cls(
            position,
            fingerprint(head[: min(position, HEAD_BYTES)]),
            fingerprint(tail[max(0, len(tail) - min(position, TAIL_BYTES)) :]),
        )

    @classmethod
    def read(cls, fd: int, position: int) -> Marks:
        return cls.of(position, *surroundings(fd, position))

    def hold_for(self, fd: int) -> bool:
        """Return whether an open file has these bytes; true for any file at position 0."""
        return Marks.read(fd, self.position) == self


def surroundings(fd: int, position: int) -> tuple[bytes, bytes]:
    """Return the bytes that marks at a position are made of; fewer, where the file is shorter."""
    tail_length = min(position, TAIL_BYTES)
    head = os.pread(fd, min(position, HEAD_BYTES), 0)
    return head, os.pread(fd, tail_length, position - tail_length)


def fingerprint(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
