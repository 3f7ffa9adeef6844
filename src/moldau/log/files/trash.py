"""Trash: files and folders that are being deleted."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections import deque

logger = logging.getLogger("moldau.log")


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
