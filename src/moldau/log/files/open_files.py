"""Open files: few of them, shared by all logs of a broker."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from typing import NamedTuple, Protocol

from moldau.log.errors import StorageError
from moldau.log.files.disk import FILE_MODE

LOG_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
INDEX_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Holder(Protocol):
    """Whoever a pooled file belongs to; the pool clears `file` when it evicts it."""

    file: OpenFile | None


class OpenFile:
    """One file descriptor, closed when the last reference goes.

    Whoever is still sending from the file holds the OpenFile, so neither eviction nor deletion of
    the segment disturbs it. `used` is the pool's second-chance bit.
    """

    __slots__ = ("fd", "holder", "used")

    def __init__(self, fd: int, holder: Holder | None = None) -> None:
        self.fd = fd
        self.used = True
        self.holder = holder

    def __del__(self) -> None:
        os.close(self.fd)


class Slice(NamedTuple):
    """`size` bytes of an open file from `position`: whole record batches."""

    file: OpenFile
    position: int
    size: int


class FilePool:
    """At most `max_open` files kept open, evicted by second chance. Safe for any thread.

    Files that someone else still holds (a queued slice) stay open beyond the limit until let go.
    """

    __slots__ = ("_lock", "_ring", "max_open")

    def __init__(self, max_open: int) -> None:
        self.max_open = max(1, max_open)
        self._ring: OrderedDict[OpenFile, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ring)

    def open(self, path: str, holder: Holder, flags: int) -> OpenFile:
        """Return the open file of `holder`, opened if it is not; StorageError if it cannot be."""
        with self._lock:
            if holder.file is not None:
                return holder.file
            while len(self._ring) >= self.max_open:
                self._evict()
            file = OpenFile(self._open_fd(path, flags), holder)
            holder.file = file
            self._ring[file] = None
            return file

    def release(self, holder: Holder) -> None:
        """Forget the file of `holder`; it closes once nobody else holds it."""
        with self._lock:
            file = holder.file
            if file is not None:
                holder.file = None
                file.holder = None
                self._ring.pop(file, None)

    def _open_fd(self, path: str, flags: int) -> int:
        while True:
            try:
                return os.open(path, flags, FILE_MODE)
            except OSError as error:
                # Others in this process may have taken the descriptors: make do with fewer.
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._ring:
                    raise StorageError.of(path, error) from error
                for _ in range(min(len(self._ring), 16)):
                    self._evict()

    def _evict(self) -> None:
        ring = self._ring
        while True:
            file = next(iter(ring))
            if not file.used:
                break
            file.used = False
            ring.move_to_end(file)
        del ring[file]
        if file.holder is not None:
            file.holder.file = None
            file.holder = None
