"""A flush: a log is forced to disk without holding up the event loop."""

from __future__ import annotations

import os
from collections.abc import Callable

from moldau.log.errors import StorageError
from moldau.log.files.disk import replace_file, sync_folder
from moldau.log.files.open_files import OpenFile


class Flush:
    """Everything of a log up to `target`, to be forced to disk.

    Made on the event loop by `Log.prepare_flush`; `run` blocks and belongs on a thread; `done` is
    called on the loop when `run` has returned or raised, and moves the log's `flushed` if it may.
    """

    __slots__ = ("_files", "_finish", "_folder", "_folders", "_is_done", "_replacements",
                 "lost_data", "target")  # fmt: skip

    def __init__(
        self,
        target: int,
        folder: str,
        files: list[tuple[str, OpenFile]],
        replacements: list[tuple[str, bytes]],
        folders: list[str],
        finish: Callable[[bool], None],
    ) -> None:
        self.target = target
        self._folder = folder
        self._files = files
        self._replacements = replacements
        # Those in which names are new.
        self._folders = folders
        self._finish = finish
        self._is_done = False
        # The disk refused batches: what the system holds of them may be gone (fsyncgate), so it
        # must not be tried again. The next flush rewrites a small file that the disk refused.
        self.lost_data = False

    def run(self) -> None:
        """Any thread. Blocks until the disk has it all; StorageError if it refuses."""
        at = self._folder
        try:
            self.lost_data = True
            for path, file in self._files:
                at = path
                os.fsync(file.fd)
            self.lost_data = False
            for path, content in self._replacements:
                at = path
                replace_file(path, content, sync=True)
            for at in self._folders:
                sync_folder(at)
        except OSError as error:
            raise StorageError.of(at, error) from error
        finally:
            self._files.clear()
        self._is_done = True

    def write(self) -> None:
        """Any thread. As `run`, but leaves it to the caller to force the file system to disk.

        A crash before that may leave small files empty, which loading takes for missing.
        """
        at = self._folder
        try:
            for path, content in self._replacements:
                at = path
                replace_file(path, content, sync=False)
        except OSError as error:
            raise StorageError.of(at, error) from error
        finally:
            self._files.clear()
        self._is_done = True

    def done(self) -> None:
        """Event loop only: note that it is on disk, or that it has to be tried again."""
        self._finish(self._is_done)
