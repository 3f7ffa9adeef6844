"""The lock of a data folder."""

from __future__ import annotations

import fcntl
import os

from moldau.log.errors import FolderInUse

FILE_NAME = ".lock"


class FolderLock:
    """`.lock`, an empty file that is locked while a store has the folder open.

    The system lets go of it when the process ends, however that happens.
    """

    __slots__ = ("_folder", "fd")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # Open while it is held.
        self.fd: int | None = None

    def take(self) -> None:
        """FolderInUse if another process has the folder, OSError if it cannot be used."""
        fd = os.open(f"{self._folder}/{FILE_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise FolderInUse(self._folder) from None
        self.fd = fd

    def drop(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
