"""Prewrites: the records of a large batch, written to a file before the batch is appended.

Copying tens of megabytes into the page cache takes longer than an event loop may be held. So a
thread puts the records where they will lie, behind the end of the file, and the write that follows
puts only the header before them. The thread checks the CRC as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from moldau.log.files.open_files import OpenFile
from moldau.records.batch import CRC_START, HEADER_SIZE, read_header
from moldau.records.checksum import crc32c

_Buffer = bytes | bytearray | memoryview

# A smaller batch costs more to hand to a thread than to write.
WORTH_PREWRITING = 16 << 10
# What is written between two looks at whether that is still wanted.
PIECE = 1 << 20
# Not the flags of the log's own file: who opens a file to append to it cannot write elsewhere.
_FLAGS = os.O_WRONLY | os.O_CLOEXEC


class Prewrite:
    """One batch on its way to the end of a file, which knows it until it is written or dropped.

    Nobody reads behind the end of a file. The header is missing until `publish`, so a crash leaves
    bytes that recovery cuts off, whatever would have become of the batch. `run` is for any thread,
    all else for the event loop.
    """

    __slots__ = (
        "_batch", "_end", "_is_stopped", "_lock", "_path", "_position", "is_done", "is_intact",
    )  # fmt: skip

    def __init__(
        self, path: str, position: int, batch: _Buffer, end: Callable[[Prewrite], None]
    ) -> None:
        self._path = path
        self._position = position
        self._batch = batch
        self._end = end
        self.is_done = False
        # Whether the batch has the CRC that its header says, as far as is known.
        self.is_intact = False
        self._is_stopped = False
        # Held while a piece is being written.
        self._lock = threading.Lock()

    def run(self) -> None:
        """Write the records, until all are there or nobody wants them any more. Blocks.

        What the disk refuses is left to the append, which reports it.
        """
        batch = memoryview(self._batch)
        self.is_intact = crc32c(batch[CRC_START:]) == read_header(batch).crc
        records = batch[HEADER_SIZE:]
        position = self._position + HEADER_SIZE
        file: OpenFile | None = None
        done = 0
        while done < len(records):
            with self._lock:
                if self._is_stopped:
                    return
                try:
                    if file is None:
                        # Under the lock: the name may be another file's once this is stopped.
                        file = self._open()
                    written = os.pwrite(file.fd, records[done : done + PIECE], position + done)
                except OSError:
                    return
            if not written:
                return
            done += written
        self.is_done = True

    def stop(self) -> None:
        """Have nothing more written; waits for the piece that is being written."""
        with self._lock:
            self._is_stopped = True

    def has_checked(self, batch: _Buffer) -> bool:
        """Return whether this is the batch, and its CRC is right."""
        return self.is_intact and batch is self._batch

    def publish(self, batches: Sequence[_Buffer]) -> bool:
        """Write the header if all else of these batches is there; whether they are in the file."""
        if not self.is_done or len(batches) != 1 or batches[0] is not self._batch:
            return False
        file = self._open()
        header = memoryview(self._batch)[:HEADER_SIZE]
        return os.pwrite(file.fd, header, self._position) == HEADER_SIZE

    def end(self) -> None:
        """Cut off what was written, unless the batch is part of the file by now."""
        self._end(self)

    def _open(self) -> OpenFile:
        return OpenFile(os.open(self._path, _FLAGS))
