"""Open files, few of them, and files on their way out."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import shutil
import threading
from collections import OrderedDict, deque
from typing import NamedTuple, Protocol

from moldau.log.errors import StorageError

logger = logging.getLogger("moldau.log")

LOG_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
INDEX_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_MODE = 0o644


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
        """The open file of `holder`, opened if it is not; StorageError if it cannot be."""
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
                return os.open(path, flags, _MODE)
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


class Trash:
    """Files and folders that have been renamed out of the way, removed by a thread.

    Unlinking a large file can take long, so the event loop never does it. The thread lives only
    while there is something to remove. A crash leaves the renamed files, which the next start finds
    by their suffix.
    """

    __slots__ = ("_lock", "_paths", "_thread")

    def __init__(self) -> None:
        self._paths: deque[str] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, path: str) -> None:
        with self._lock:
            self._paths.append(path)
            if self._thread is None:
                thread = threading.Thread(target=self._sweep, name="moldau-trash", daemon=True)
                self._thread = thread
                thread.start()

    def join(self) -> None:
        """Wait until everything added so far is gone."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _sweep(self) -> None:
        while True:
            with self._lock:
                if not self._paths:
                    self._thread = None
                    return
                path = self._paths.popleft()
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except (IsADirectoryError, PermissionError):
                shutil.rmtree(path, ignore_errors=True)
            except OSError as error:
                logger.warning("could not remove %s: %s", path, error)


def sync_folder(path: str) -> None:
    """Make creations and renames inside a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def can_sync_file_systems() -> bool:
    """Whether the system can force one whole file system to disk: Linux does."""
    return hasattr(ctypes.CDLL(None), "syncfs")


def sync_file_system(fd: int) -> None:
    """Force everything on the file system of `fd` to disk.

    OSError also for what the system failed to write earlier, since `fd` was opened.
    """
    if ctypes.CDLL(None, use_errno=True).syncfs(fd):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def remove_file(path: str) -> None:
    """Unlink a file if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError.of(path, error) from error


def replace_file(path: str, content: bytes, *, sync: bool) -> None:
    """Put `content` at `path` so that a crash leaves either the old file or the new one.

    With `sync` the content is on disk when it appears; the folder is for the caller to sync.
    """
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
