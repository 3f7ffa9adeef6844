"""Slices: long work on the event loop, a little at a time.

One turn of the loop between two slices is enough for a client that sends many requests at once, but
not for one that waits for each answer before it asks again: it would get one answer a slice. So the
work rests as long as its slice took, where the turn shows that there are others to be served.
"""

from __future__ import annotations

import asyncio
from time import monotonic

# A turn of the loop takes longer only if others were served in it.
_IDLE_TURN_S = 0.00005
# The loop's timers cannot wait for less; a slice that took longer than the most was held up.
_LEAST_REST_S = 0.001
_MOST_REST_S = 0.01


class Slices:
    """The slices of one piece of work, the first of which begins now. Event loop only."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = monotonic()

    @property
    def took_s(self) -> float:
        """How long the present slice has taken so far."""
        return monotonic() - self._began

    async def rest(self) -> None:
        """End a slice, serve others, and begin the next one."""
        ended = monotonic()
        await asyncio.sleep(0)
        if monotonic() - ended > _IDLE_TURN_S:
            took = ended - self._began
            await asyncio.sleep(min(max(took, _LEAST_REST_S), _MOST_REST_S))
        self._began = monotonic()
