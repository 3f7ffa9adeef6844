"""The throttle of a follower: holds copying to a number of bytes a second."""

from __future__ import annotations


class Throttle:
    """Tells how long to wait after each copy so that the rate is kept on average."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def take(self, size: int, bytes_per_second: int, now: float) -> float:
        """Return the seconds to wait before the next copy, after one of `size` bytes."""
        self._free_at = max(self._free_at, now) + size / bytes_per_second
        return self._free_at - now
