"""Deadlines: what has to be looked at, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

NEVER = 1 << 62
# A timer that comes this late means that the loop stood still, and the heartbeats with it.
_STALL_MS = 1_000


class Waiting(Protocol):
    """Something with a deadline; `armed_at` belongs to `Deadlines`."""

    armed_at: int


T = TypeVar("T", bound=Waiting)


class Deadlines(Generic[T]):
    """Calls `due` with what is due, by one timer of the loop however many there are.

    Times are in milliseconds of the loop's clock. After a stall nothing is due for another moment:
    what arrived meanwhile is read first, so that nobody is called dead who was not heard.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, due: Callable[[T], None]) -> None:
        self._loop = loop
        self._due = due
        self._heap: list[tuple[int, int, T]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._is_excused = False

    def now(self) -> int:
        return int(self._loop.time() * 1000)

    def arm(self, item: T, at: int) -> None:
        """Have `item` called at `at`, unless it is to be called earlier anyway."""
        if at >= item.armed_at:
            return
        item.armed_at = at
        heappush(self._heap, (at, next(self._numbers), item))
        if at < self._timer_at:
            self._set_timer(at)

    def stop(self) -> None:
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        # One more, since the loop's clock is finer than ours.
        self._timer = self._loop.call_at((at + 1) / 1000, self._fire)

    def _fire(self) -> None:
        now = self.now()
        self._timer = None
        if now - self._timer_at > _STALL_MS and not self._is_excused:
            self._is_excused = True
            self._set_timer(now + _STALL_MS)
            return
        self._is_excused = False
        self._timer_at = NEVER
        while self._heap and self._heap[0][0] <= now:
            at, _, item = heappop(self._heap)
            # Otherwise it was called already, by an earlier deadline that came up later.
            if item.armed_at == at:
                item.armed_at = NEVER
                self._due(item)
        if self._heap and self._heap[0][0] < self._timer_at:
            self._set_timer(self._heap[0][0])
