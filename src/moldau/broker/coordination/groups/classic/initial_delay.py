"""The initial delay: a group that starts up waits for its other members, who are on their way."""

from __future__ import annotations


class InitialDelay:
    """The delay of the first rebalance of an empty group (group.initial.rebalance.delay.ms).

    Whenever somebody came meanwhile it is put off again, but all in all no longer than the slowest
    member may take to rejoin.
    """

    __slots__ = ("_ends_at", "_has_newcomers", "is_on", "length_ms")

    def __init__(self, length_ms: int) -> None:
        self.length_ms = length_ms
        self.is_on = False
        self._ends_at = 0
        self._has_newcomers = False

    def begin(self, now: int, longest_ms: int) -> int:
        """Wait; until when is returned."""
        self.is_on = True
        self._has_newcomers = False
        self._ends_at = now + longest_ms
        return min(now + self.length_ms, self._ends_at)

    def newcomer(self) -> None:
        self._has_newcomers = True

    def prolong(self, now: int) -> int | None:
        """Wait again if somebody came; until when, or None where it is over."""
        if not self._has_newcomers or now >= self._ends_at:
            return None
        self._has_newcomers = False
        return min(now + self.length_ms, self._ends_at)
