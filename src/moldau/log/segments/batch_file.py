"""The file of batches of a segment."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Iterator, Sequence

from moldau.log.errors import CorruptLog, StorageError
from moldau.log.files.open_files import LOG_FLAGS, FilePool, OpenFile
from moldau.log.segments.names import LOG_SUFFIX, path_of
from moldau.log.segments.prewrite import Prewrite
from moldau.records.batch import (
    HEADER,
    HEADER_SIZE,
    MAGIC,
    BatchError,
    BatchHeader,
    check_batch,
    read_header,
)

_IOV_MAX = 1024
_WALK_BYTES = 8192
_SCAN_BYTES = 1 << 20
# base offset and last offset delta of a batch
_RANGE = struct.Struct(">q15xi")

Buffer = bytes | bytearray | memoryview


class BatchFile:
    """`<base offset>.log`: record batches v2, one after the other, and nothing else.

    `size` bytes of it hold whole batches. What lies behind them (`is_torn`) is what a write left
    that failed, or a large batch that is being written ahead (`prewrite`): nobody reads it, and it
    is cut off before anything else is written. Batches are only ever added at the end or cut from
    it. Written by the event loop only, but for a prewrite; read from any thread. A crash leaves any
    prefix of what was written and not flushed, torn at any byte, and parts of a prewrite behind it.
    """

    __slots__ = ("base", "file", "folder", "is_torn", "pool", "prewrite", "size", "suffix")

    def __init__(self, folder: str, base: int, size: int, pool: FilePool, suffix: str) -> None:
        self.folder = folder
        self.base = base
        self.size = size
        self.pool = pool
        # The suffix of the file's name.
        self.suffix = suffix
        self.file: OpenFile | None = None
        self.is_torn = False
        self.prewrite: Prewrite | None = None

    @property
    def path(self) -> str:
        return path_of(self.folder, self.base, LOG_SUFFIX) + self.suffix

    def open(self) -> OpenFile:
        file = self.file
        if file is None:
            # An empty file is made when it is first written to.
            flags = LOG_FLAGS if self.size else LOG_FLAGS | os.O_CREAT
            file = self.pool.open(self.path, self, flags)
        file.used = True
        return file

    def create(self) -> None:
        """Make the file, empty whatever was there."""
        self.pool.open(self.path, self, LOG_FLAGS | os.O_CREAT | os.O_TRUNC)

    @property
    def written_ms(self) -> int:
        """When the file was last written to; compaction does not count."""
        try:
            return int(os.stat(self.path).st_mtime * 1000)
        except OSError as error:
            raise StorageError.of(self.path, error) from error

    # Writing

    def write(self, batches: Sequence[Buffer], size: int) -> None:
        """Add whole batches, `size` bytes together. After a StorageError `size` is as before."""
        try:
            file = self.file
            if file is None:
                file = self.open()
            file.used = True
            if self.is_torn:
                prewrite = self._stop_prewrite()
                if prewrite is not None and prewrite.publish(batches):
                    self.is_torn = False
                    self.size += size
                    return
                os.ftruncate(file.fd, self.size)
                self.is_torn = False
            if len(batches) == 1:
                written = os.write(file.fd, batches[0])
            else:
                written = os.writev(file.fd, batches[:_IOV_MAX])
            if written != size:
                _write_rest(file.fd, batches, written)
        except OSError as error:
            self.is_torn = True
            raise StorageError.of(self.path, error) from error
        self.size += size

    def begin_prewrite(self, batch: Buffer) -> Prewrite | None:
        """Have the records of the batch that comes next written ahead by whoever runs it.

        None while there is another. Anything else that is written or cut puts an end to it.
        """
        if self.prewrite is not None:
            return None
        self.open()
        if self.is_torn:
            self.cut(self.size)
        self.prewrite = Prewrite(self.path, self.size, batch, self._end_prewrite)
        self.is_torn = True
        return self.prewrite

    def _end_prewrite(self, prewrite: Prewrite) -> None:
        if self.prewrite is prewrite:
            # Where the disk refuses, the next write tries again, and reports it.
            with contextlib.suppress(StorageError):
                self.cut(self.size)

    def _stop_prewrite(self) -> Prewrite | None:
        prewrite, self.prewrite = self.prewrite, None
        if prewrite is not None:
            prewrite.stop()
        return prewrite

    def release(self) -> None:
        """Let go of the open file; nothing is written to it any more."""
        self._stop_prewrite()
        self.pool.release(self)

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes. Where the disk refuses, the next write tries again."""
        self._stop_prewrite()
        self.size = size
        self.is_torn = True
        try:
            os.ftruncate(self.open().fd, size)
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        self.is_torn = False

    # Reading

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes of one batch, or its first ones."""
        try:
            data = os.pread(self.open().fd, size, position)
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        if len(data) != size:
            raise self._broken(position)
        return data

    def range_at(self, position: int) -> tuple[int, int] | None:
        """(base offset, last offset) as the bytes at `position` have it; None at the end."""
        try:
            data = os.pread(self.open().fd, _RANGE.size, position)
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        if len(data) != _RANGE.size:
            return None
        base, delta = _RANGE.unpack(data)
        return base, base + delta

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch that begins in [position, end), CRCs unchecked.

        CorruptLog where the lengths do not lead to `end`, or what lies there is no batch.
        """
        file = self.open()
        data, start = b"", position
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(data):
                try:
                    data = os.pread(file.fd, min(_WALK_BYTES, end - position), position)
                except OSError as error:
                    raise StorageError.of(self.path, error) from error
                start, at = position, 0
                if len(data) < HEADER_SIZE:
                    raise self._broken(position)
            header = BatchHeader._make(HEADER.unpack_from(data, at))
            size = header.size
            if size < HEADER_SIZE or position + size > end or header.magic != MAGIC:
                raise self._broken(position)
            yield position, header
            position += size

    def scan(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes) of each batch from `position` on, every checksum included.

        BatchError at the first that is not sound, with its position in the file.
        """
        file = self.open()
        end = self.size
        data, start = b"", position
        try:
            while position < end:
                at = position - start
                needed = HEADER_SIZE
                if at + HEADER_SIZE <= len(data):
                    needed = max(read_header(data, at).size, HEADER_SIZE)
                if at + needed > len(data) and position + needed <= end:
                    wanted = min(max(_SCAN_BYTES, needed), end - position)
                    data = os.pread(file.fd, wanted, position)
                    start, at = position, 0
                    if len(data) >= HEADER_SIZE:
                        needed = max(read_header(data).size, HEADER_SIZE)
                        if len(data) < needed <= end - position:
                            data = os.pread(file.fd, needed, position)
                try:
                    header = check_batch(data, at, from_producer=False)
                except BatchError as error:
                    error.position = position
                    raise
                yield position, header, memoryview(data)[at : at + header.size]
                position += header.size
        except OSError as error:
            raise StorageError.of(self.path, error) from error

    def _broken(self, position: int) -> CorruptLog:
        return CorruptLog(self.path, position, "no valid batch")


def _write_rest(fd: int, batches: Sequence[Buffer], written: int) -> None:
    """Go on after a short write, or one of more parts than the system takes at once."""
    parts = [memoryview(part) for part in batches]
    done = 0
    while True:
        while done < len(parts) and written >= len(parts[done]):
            written -= len(parts[done])
            done += 1
        if done == len(parts):
            return
        parts[done] = parts[done][written:]
        written = os.writev(fd, parts[done : done + _IOV_MAX])
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
