"""The watchdog: keeps a process from outliving the one that started it."""

from __future__ import annotations

import subprocess

_DISMISS_WITHIN_S = 15.0

# The pipe closes by itself when its writer is gone. A line through it says that all is well.
_SCRIPT = 'read ended || kill -KILL "$1"'


class Watchdog:
    """Ends the process `pid` when this process is gone, however it went, unless dismissed."""

    def __init__(self, pid: int) -> None:
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "watchdog", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """The process has ended: its number may soon be another's."""
        process, self._process = self._process, None
        if process is not None:
            try:
                process.communicate(b"\n", timeout=_DISMISS_WITHIN_S)
            finally:
                process.kill()
