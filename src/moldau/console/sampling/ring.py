"""Rings: the last hours of many series in little memory, a step at a time."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Mapping

_NOTHING = math.nan


class Ring:
    """Series with one number a step, for the last `steps` steps. Any thread.

    All series share their times. A step in which a series has no number is a gap. A series without
    any number for a whole round is forgotten; beyond `most` series new ones are not taken.
    """

    def __init__(self, steps: int, most: int = 4000) -> None:
        self._steps = steps
        self._most = most
        self._times = array("q", bytes(8 * steps))
        self._next = 0
        self._series: dict[str, array[float]] = {}
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, at_ms: int, numbers: Mapping[str, float | None]) -> None:
        """Write the numbers of the next step."""
        with self._lock:
            at = self._next % self._steps
            self._times[at] = at_ms
            for values in self._series.values():
                values[at] = _NOTHING
            for name, number in numbers.items():
                if number is None:
                    continue
                values_of = self._series.get(name)
                if values_of is None:
                    # Most topics rest for hours: a series begins when there is something to see.
                    if len(self._series) >= self._most or (not number and name[:6] == "topic:"):
                        continue
                    values_of = array("f", [_NOTHING]) * self._steps
                    self._series[name] = values_of
                values_of[at] = number
                self._seen[name] = self._next
            self._next += 1
            for name in [
                each for each, seen in self._seen.items() if seen <= self._next - self._steps
            ]:
                del self._series[name], self._seen[name]

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._series)

    def read(
        self, names: list[str], since_ms: int
    ) -> tuple[list[int], dict[str, list[float | None]]]:
        """Return the times since then, and the numbers of each series; None for a gap."""
        with self._lock:
            first = max(0, self._next - self._steps)
            steps = [
                number % self._steps
                for number in range(first, self._next)
                if self._times[number % self._steps] >= since_ms
            ]
            series: dict[str, list[float | None]] = {}
            for name in names:
                values = self._series.get(name)
                series[name] = [
                    None
                    if values is None or math.isnan(values[at])
                    else round(float(values[at]), 3)
                    for at in steps
                ]
            return [self._times[at] for at in steps], series
