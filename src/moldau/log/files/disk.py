"""The disk: small files and names, written durably. Any thread; blocks."""

from __future__ import annotations

import ctypes
import os

from moldau.log.errors import StorageError

FILE_MODE = 0o644


def read_small(path: str) -> bytes | None:
    """Return a small file whole, or None if it does not exist. Nobody may be writing to it."""
    try:
        # Without a file object: a start reads several of them for each of thousands of logs.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of(path, error) from error


def sync_folder(path: str) -> None:
    """Make creations and renames inside a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def can_sync_file_systems() -> bool:
    """Return whether the system can force one whole file system to disk: Linux does."""
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


def rename_file(old: str, new: str) -> None:
    """Rename a file if it is there."""
    try:
        os.rename(old, new)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError.of(old, error) from error


def replace_file(path: str, content: bytes, *, sync: bool) -> None:
    """Put `content` at `path` so that a crash leaves either the old file or the new one.

    With `sync` the content is on disk when it appears; the folder is for the caller to sync.
    """
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
