"""Turns: many connections that send a lot at once are served a little each, one after another.

The loop handles everything that has arrived in one round before it looks for more, so what each
connection may do in a round adds up to what everybody else waits. A connection gets a slice of
time; what it has sent beyond that waits for its next turn. When a round has taken long enough,
connections that come up in it wait for a turn too, and those which have not had one go first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.broker.connection import Connection

# How long one connection's requests are handled before others are served.
SLICE_S = 0.002
# How long one round of the loop handles requests.
ROUND_S = 0.01


class Turns:
    """The connections that wait for their turn. Event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Those that were not served in this round, and those that had a slice and want another.
        self._new: deque[Connection] = deque()
        self._again: deque[Connection] = deque()
        self._is_due = False

    def wait(self, connection: Connection, *, was_served: bool) -> None:
        """Calls `connection.take_turn` when it is its turn."""
        (self._again if was_served else self._new).append(connection)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        end = monotonic() + ROUND_S
        # One of each at least, so that nobody waits for ever.
        if self._again:
            self._again.popleft().take_turn()
        while self._new or self._again:
            (self._new or self._again).popleft().take_turn()
            if monotonic() > end:
                break
        self._is_due = bool(self._new or self._again)
        if self._is_due:
            self._loop.call_soon(self._serve)
