"""Hang-ups: connections that the broker ended because of what came over them.

The first one for a reason from a host is told at once. Those that follow are counted and told
together a while later, so a client that sends a million bad frames does not fill the disk.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable

logger = logging.getLogger("moldau.broker")

# How long equal ones are counted before they are told.
WINDOW_S = 60.0
# The hosts and reasons that are counted apart; all others share one line.
_MOST_KINDS = 100
_NUMBERS = re.compile(r"-?\d+")
_OTHERS = ("other hosts", "other reasons")


class Hangups:
    """Counts of (host, reason), where reasons that differ in numbers alone are one. Loop only."""

    def __init__(self, call_later: Callable[..., asyncio.TimerHandle]) -> None:
        self._call_later = call_later
        # How many since the first, which was told, and what the last one said.
        self._counts: dict[tuple[str, str], int] = {}
        self._latest: dict[tuple[str, str], str] = {}
        self._timer: asyncio.TimerHandle | None = None
        # All since the start.
        self.total = 0

    def note(self, host: str, reason: str) -> bool:
        """Count one; return whether it is the first of its kind, which the caller logs in full."""
        self.total += 1
        kind = host, _NUMBERS.sub("#", reason)
        if kind not in self._counts and len(self._counts) >= _MOST_KINDS:
            kind = _OTHERS
        count = self._counts.get(kind, -1) + 1
        self._counts[kind] = count
        if count:
            self._latest[kind] = reason
        if self._timer is None:
            self._timer = self._call_later(WINDOW_S, self.tell)
        return not count and kind is not _OTHERS

    def tell(self) -> None:
        """Log a line for each kind that came more than once, and start again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counts, self._counts = self._counts, {}
        latest, self._latest = self._latest, {}
        for kind, count in counts.items():
            more = count + 1 if kind is _OTHERS else count
            if more:
                host, reason = kind[0], latest.get(kind, kind[1])
                logger.warning(
                    "closed %d more connections from %s, the last because: %s", more, host, reason
                )
