"""The exit: every answer leaves through here, where it can be throttled and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from moldau.broker.net.responses import Response


class Exit:
    """The one way out, for all connections of a broker. Event loop only.

    `throttle` says how many milliseconds a client is to wait before it asks again. `count` is told
    of every answer with the parts that it is sent in; its request says who asked what and when.
    """

    __slots__ = ("count", "throttle")

    def __init__(self) -> None:
        self.throttle: Callable[[Response], int] | None = None
        self.count: Callable[[Response, list[Any]], None] | None = None

    def leave(self, response: Response) -> list[Any]:
        """Return the parts that the answer is sent in."""
        throttle = self.throttle
        parts = response.encode(0 if throttle is None else throttle(response))
        if self.count is not None:
            self.count(response, parts)
        return parts

    async def leave_slowly(self, response: Response) -> list[Any]:
        """Return the parts of an answer that takes long to encode: that is done on a thread."""
        throttle = self.throttle
        throttle_ms = 0 if throttle is None else throttle(response)
        parts = await asyncio.to_thread(response.encode, throttle_ms)
        if self.count is not None:
            self.count(response, parts)
        return parts
