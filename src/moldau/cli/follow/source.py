"""The content of one file: complete lines, from the current position on."""

from __future__ import annotations

import os
import time
import uuid
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.cli.follow.marks import HEAD_BYTES, TAIL_BYTES, Marks, surroundings

READ_BYTES = 1 << 18
MAX_LINE_BYTES = 100_000_000


# Lines by where they start: length and checksum.
Arrived = dict[int, tuple[int, int]]


class ContentChanged(Exception):
    """The file no longer holds what was read from it: it was cut, and perhaps written anew."""


class LineTooLong(Exception):
    """A line that no message can hold."""


class Piece(NamedTuple):
    """One line with its line end, and where in the file it begins."""

    start: int
    content: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.content)


@dataclass(slots=True, eq=False)
class Source:
    """A file that is read, with two positions: everything before `sent` was handed to the producer,
    everything before `delivered` is in the topic.

    `id` names the content: it stays when the file is renamed or moved to a copy, and a file that is
    cut and written anew gets another. `arrived` are lines that a collector which died has delivered
    beyond the saved place.
    """

    id: str
    fd: int
    device: int
    inode: int
    sent: int
    delivered: int
    head: bytes
    sent_tail: bytes
    delivered_tail: bytes
    arrived: Arrived = field(default_factory=dict)
    rotated: bool = False
    in_flight: int = 0
    grown_at: float = field(default_factory=time.monotonic)
    seen: tuple[int, int] = (-1, -1)

    @classmethod
    def start(cls, fd: int, position: int = 0) -> Source:
        """Return a file that is new to us."""
        return cls.resume(fd, uuid.uuid4().hex[:16], position, {})

    @classmethod
    def resume(cls, fd: int, id: str, position: int, arrived: Arrived) -> Source:
        """Return a file in which everything before the position is delivered."""
        head, tail = surroundings(fd, position)
        status = os.fstat(fd)
        return cls(
            id, fd, status.st_dev, status.st_ino, position, position, head, tail, tail, arrived
        )

    @property
    def place(self) -> Marks:
        """Where it stands for good."""
        return Marks.of(self.delivered, self.head, self.delivered_tail)

    @property
    def reading_place(self) -> Marks:
        return Marks.of(self.sent, self.head, self.sent_tail)

    @property
    def is_open(self) -> bool:
        return self.fd >= 0

    @property
    def is_deleted(self) -> bool:
        return self.is_open and os.fstat(self.fd).st_nlink == 0

    @property
    def is_read(self) -> bool:
        """Whether everything in the file was handed to the producer."""
        return self.is_open and os.fstat(self.fd).st_size == self.sent

    def is_file(self, status: os.stat_result) -> bool:
        return (self.device, self.inode) == (status.st_dev, status.st_ino)

    def next_lines(self, most: int = READ_BYTES) -> list[Piece]:
        """Return the whole lines that follow, about `most` bytes of them; an unfinished one waits.

        They count as sent only after `advance`. ContentChanged when the file is not what it was.
        """
        status = os.fstat(self.fd)
        looks = (status.st_mtime_ns, status.st_size)
        if looks == self.seen:
            return []
        data = os.pread(self.fd, most, self.sent)
        while b"\n" not in data and len(data) == most:
            most *= 2
            if most > 2 * MAX_LINE_BYTES:
                raise LineTooLong(f"the line at byte {self.sent} is longer than {MAX_LINE_BYTES}")
            data = os.pread(self.fd, most, self.sent)
        # Looked at after the read: what was read is then of the same content as these marks.
        if not self.reading_place.hold_for(self.fd):
            raise ContentChanged
        if self.seen[1] != status.st_size:
            self.grown_at = time.monotonic()
        if len(data) < most:
            self.seen = looks
        pieces, start = [], self.sent
        for line in _whole_lines(data):
            pieces.append(Piece(start, line))
            start += len(line)
        return pieces

    def unfinished(self) -> Piece | None:
        """Return what follows the last line end, for a file that nobody will finish."""
        length = os.fstat(self.fd).st_size - self.sent
        data = os.pread(self.fd, min(length, MAX_LINE_BYTES), self.sent) if length > 0 else b""
        if not data or b"\n" in data or not self.reading_place.hold_for(self.fd):
            return None
        return Piece(self.sent, data)

    def arrived_part(self, piece: Piece) -> int:
        """Return how many bytes of this line a collector before us has delivered, as a message.

        It is all of it or nothing, but for a line that was taken for finished and went on.
        """
        if not self.arrived:
            return 0
        length, checksum = self.arrived.pop(piece.start, (0, 0))
        if length and zlib.crc32(piece.content[:length]) != checksum:
            raise ContentChanged
        return length

    def look_again(self) -> None:
        """Not all of the lines were taken: give them again."""
        self.seen = (-1, -1)

    def advance(self, piece: Piece) -> bytes:
        """Note that the line is sent; return the bytes that mark the place behind it."""
        if len(self.head) < HEAD_BYTES:
            self.head += piece.content[: HEAD_BYTES - len(self.head)]
        tail = piece.content[-TAIL_BYTES:]
        if len(tail) < TAIL_BYTES:
            tail = (self.sent_tail + tail)[-TAIL_BYTES:]
        self.sent = piece.end
        self.sent_tail = tail
        return tail

    def settle(self, end: int, tail: bytes) -> None:
        """Everything before `end` is in the topic."""
        self.delivered = end
        self.delivered_tail = tail

    def move_to(self, fd: int) -> None:
        """Go on in another file with the same content, as far as it was read."""
        self.close()
        status = os.fstat(fd)
        self.fd, self.device, self.inode = fd, status.st_dev, status.st_ino
        self.look_again()

    def close(self) -> None:
        if self.is_open:
            os.close(self.fd)
            self.fd = -1


def holds_line(fd: int, start: int, length: int, checksum: int) -> bool:
    return zlib.crc32(os.pread(fd, length, start)) == checksum


def _whole_lines(data: bytes) -> list[bytes]:
    # Not splitlines(), which sees line ends in \r, \x0b and others as well.
    return [line + b"\n" for line in data.split(b"\n")[:-1]]
