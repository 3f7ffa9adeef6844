"""Rates: how much was done in the last seconds, and how long to wait until that is little enough.

As in Kafka: samples of one window each, of which the last few count.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Windows(NamedTuple):
    """How many samples count, the one under way included, and how long each lasts."""

    samples: int = 11
    seconds: float = 1.0


class Rate:
    """How much of something is done per second, over the last windows, against a limit.

    A limit leaves an allowance: what may still be done in the window under way, whatever else
    happens. While that lasts (until `fresh_until`) there is nothing to compute, only to subtract.
    """

    __slots__ = (
        "_allowed", "_limit", "_samples", "_total", "_windows", "allowance", "fresh_until",
        "touched_at",
    )  # fmt: skip

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limit = 0.0
        # When a window began, and how much was done in it.
        self._samples: deque[list[float]] = deque()
        self._total = 0.0
        # What the allowance was when the samples were counted, and until when it holds.
        self._allowed = self.allowance = 0.0
        self.fresh_until = 0.0
        self.touched_at = 0.0

    def limit_to(self, limit: float, now: float) -> None:
        """Take this limit from now on."""
        if limit != self._limit:
            self._limit = limit
            self._count(now)
            self._allow()

    def spend(self, amount: float, now: float) -> float:
        """Count what was done just now; return how long to do nothing, so that the rate falls to
        the limit. What is negative takes some of it back."""
        left = self.allowance - amount
        if left >= 0.0 and now < self.fresh_until:
            self.allowance = left
            return 0.0
        self._count(now)
        self._samples[-1][1] += amount
        self._total += amount
        self._allow()
        return self._wait_s(now)

    def wait_s(self, now: float) -> float:
        """Return how long to do nothing, for what was done before."""
        if self.allowance >= 0.0:
            return 0.0
        self._count(now)
        self._allow()
        return self._wait_s(now)

    def _count(self, now: float) -> None:
        """Count what was spent of the allowance, and forget samples that are too old."""
        samples = self._samples
        count, seconds = self._windows
        if samples:
            spent = self._allowed - self.allowance
            samples[-1][1] += spent
            self._total += spent
            self._allowed = self.allowance
        while samples and now - samples[0][0] >= count * seconds:
            self._total -= samples.popleft()[1]
        if not samples or now - samples[-1][0] >= seconds:
            samples.append([now, 0.0])
        self.touched_at = now

    def _allow(self) -> None:
        self._allowed = self.allowance = self._limit * self._least_s - self._total
        self.fresh_until = self._samples[-1][0] + self._windows.seconds

    @property
    def _least_s(self) -> float:
        count, seconds = self._windows
        return max(count - 1, 1) * seconds

    def _wait_s(self, now: float) -> float:
        elapsed = max(now - self._samples[0][0], self._least_s)
        rate = self._total / elapsed
        return 0.0 if rate <= self._limit else (rate - self._limit) / self._limit * elapsed


class Bucket:
    """Tokens that come back at a rate, as many as the windows have; it may owe some (KIP-599)."""

    __slots__ = ("_at", "_saved_s", "_tokens", "touched_at")

    def __init__(self, windows: Windows, limit: float, now: float) -> None:
        # For how long tokens are saved up.
        self._saved_s = windows.samples * windows.seconds
        self._tokens = limit * self._saved_s
        self._at = self.touched_at = now

    def take(self, amount: float, limit: float, now: float) -> None:
        """Take tokens, whether they are there or not."""
        self._refill(limit, now)
        self._tokens -= amount

    def wait_s(self, limit: float, now: float) -> float:
        """Return how long it takes until nothing is owed."""
        self._refill(limit, now)
        return max(-self._tokens, 0.0) / limit

    def _refill(self, limit: float, now: float) -> None:
        most = limit * self._saved_s
        self._tokens = min(most, self._tokens + (now - self._at) * limit)
        self._at = self.touched_at = now
