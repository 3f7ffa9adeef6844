"""Turns: connections that send a lot at once are served a little each, one after another.

The loop handles everything that has arrived in one round before it looks for more, so what each
connection does in a round adds up to what everybody else waits. A connection gets a slice; what it
has sent beyond that waits for its turn, and a round has one turn. Who sends little never waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

# How long one connection's requests are handled before others are served.
SLICE_S = 0.002


class Waiting(Protocol):
    """A connection that has sent more than it was served."""

    def take_turn(self) -> None:
        """Continue with what has arrived."""


class Turns:
    """The connections that wait for their turn. Event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Waiting] = deque()

    def wait(self, connection: Waiting) -> None:
        """Call `connection.take_turn` when it is its turn."""
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        try:
            self._waiting[0].take_turn()
        finally:
            # Only now, so that a connection that wants another turn does not start a second chain
            # of calls.
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._serve)
