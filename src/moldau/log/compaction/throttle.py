"""The throttle of a worker: how fast it may read and write, and whether anyone waits for it."""

from __future__ import annotations

import os
import time


class Orphaned(Exception):
    """The broker that wanted this is gone."""


class Throttle:
    """Keeps reading and writing below a rate, and notices when the broker is gone."""

    def __init__(self, bytes_per_second: float, broker_pid: int) -> None:
        self._rate = bytes_per_second
        self._broker_pid = broker_pid
        self._began = time.monotonic()
        self._bytes = 0

    def count(self, size: int) -> None:
        self._bytes += size
        if self._broker_pid and os.getppid() != self._broker_pid:
            raise Orphaned
        ahead = self._bytes / self._rate - (time.monotonic() - self._began)
        while ahead > 0.01:
            time.sleep(min(ahead, 1.0))
            if self._broker_pid and os.getppid() != self._broker_pid:
                raise Orphaned
            ahead = self._bytes / self._rate - (time.monotonic() - self._began)
