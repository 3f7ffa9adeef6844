"""Back-pressure: whether a connection is read from, and the reasons why not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

# The reasons, as bits.
BACKED_UP = 1
AWAITS_TURN = 2
AWAITS_MEMORY = 4
AWAITS_WORK_ASIDE = 8
ENDED = 16
THROTTLED = 32


class Reading:
    """The reasons not to read from a connection: `blocked`, 0 if there are none.

    While there is a reason, nothing more is received, and nothing of what has been received is
    handled. Once it has ended it is blocked for good. Event loop only.
    """

    __slots__ = ("_go_on", "_muted_until", "_transport", "blocked")

    def __init__(self, transport: Any, go_on: Callable[[], None]) -> None:
        self._transport = transport
        self._go_on = go_on
        self.blocked = 0
        self._muted_until = 0.0

    def block(self, why: int) -> None:
        """Stop, until `unblock` has been called for every reason."""
        if not self.blocked:
            self._transport.pause_reading()
        self.blocked |= why

    def unblock(self, why: int) -> None:
        """Go on with what has been received, and read on, unless there is another reason not to."""
        self.blocked &= ~why
        if not self.blocked:
            self._go_on()
        if not self.blocked:
            self._transport.resume_reading()

    def mute(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Stop for so long, or for as long as was said before if that is longer."""
        self._muted_until = max(self._muted_until, loop.time() + seconds)
        if not self.blocked & THROTTLED:
            self.block(THROTTLED)
            loop.call_later(seconds, self._unmute, loop)

    def _unmute(self, loop: asyncio.AbstractEventLoop) -> None:
        left = self._muted_until - loop.time()
        if left > 0:
            loop.call_later(left, self._unmute, loop)
        elif not self.blocked & ENDED:
            self.unblock(THROTTLED)

    def end(self) -> None:
        """Stop for good. The transport reads on, if only to see that the client has gone."""
        self.blocked |= ENDED
