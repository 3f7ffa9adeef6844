"""Unix sockets between Java and its Python workers, in a folder that goes with this process.

They are the default of local sessions: over TCP both sides wait for acknowledgements. Spark leaves
the files of its sockets where they are, so they get a folder of their own.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

# The kernel takes paths of 107 bytes, of which Spark's names of sockets have 42.
_LONGEST = 107 - 42
SOCKETS = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
_PREFIX = "moldau-sockets-"
# What `mkdtemp` adds.
_RANDOM = 8


def socket_settings() -> dict[str, str]:
    """Return Spark's settings for sockets in our folder; none, which means TCP, where the temporary
    folder's path is too long."""
    folder = _folder(os.getpid())
    return {} if folder is None else {SOCKETS: "true", FOLDER: str(folder)}


def discard_sockets() -> None:
    """Remove our folder, once Java is gone; for who ends without the hooks of `atexit`."""
    if _folder.cache_info().currsize:
        folder = _folder(os.getpid())
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        _folder.cache_clear()


def tcp_settings() -> dict[str, str]:
    """Return what a session on a cluster needs where a local one has left its settings in Java."""
    return {SOCKETS: "false"} if _folder.cache_info().currsize else {}


@cache
def _folder(process: int) -> Path | None:
    """Return the folder of this process, which holds a lock on it for as long as it lives."""
    parent = Path(tempfile.gettempdir())
    _sweep(parent)
    if len(os.fsencode(parent / _PREFIX)) + _RANDOM > _LONGEST:
        return None
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Somebody else may have swept it before it was locked.
        if _lock(folder) is not None and folder.exists():
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            return folder


def _sweep(parent: Path) -> None:
    """Remove the folders of processes that were killed."""
    for each in parent.glob(f"{_PREFIX}*"):
        lock = _lock(each)
        if lock is not None:
            shutil.rmtree(each, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Return a descriptor that has the lock; a process that shares the folder by a container, with
    numbers of its own, respects it, too."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
