"""The exit: every answer leaves through here, where it can be throttled and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from moldau.broker.metrics import Metrics
from moldau.broker.net.context import Context
from moldau.broker.net.responses import Response


class Exit:
    """The one way out, for all connections of a broker. Event loop only.

    `spent`, where time is limited, is told who asked, the client's name for itself, and when a turn
    of its requests, or a step of one that is answered later, began and ended. `throttle` says how
    many milliseconds a client is to wait before it asks again. `count` is told of every answer with
    the parts that it is sent in; its request says who asked what and when. `metrics`, where there
    are any, count it when its turn ends.
    """

    __slots__ = ("_note", "count", "metrics", "spent", "throttle", "throttled_ms")

    def __init__(self) -> None:
        self.metrics: Metrics | None = None
        # Notes that an answer has left, for the metrics.
        self._note: Callable[[Response], None] | None = None
        self.throttled_ms = 0
        self.spent: Callable[[Context, str, float, float], None] | None = None
        self.throttle: Callable[[Response], int] | None = None
        self.count: Callable[[Response, list[Any]], None] | None = None

    def count_by(self, metrics: Metrics) -> None:
        """Count every answer from now on."""
        self.metrics = metrics
        self._note = metrics.left.append

    def leave(self, response: Response) -> list[Any]:
        """Return the parts that the answer is sent in."""
        throttle = self.throttle
        parts = response.encode(0 if throttle is None else throttle(response))
        if self.count is not None:
            self.count(response, parts)
        if self._note is not None:
            self._note(response)
        return parts

    def leave_written(self, response: Response) -> list[Any]:
        """Return the parts of an answer that is counted with the other writes of its turn."""
        throttle = self.throttle
        parts = response.encode(0 if throttle is None else throttle(response))
        if self.count is not None:
            self.count(response, parts)
        return parts

    def leave_unanswered(self, response: Response) -> list[Any]:
        """Count an answer that is never sent, like `leave_written`."""
        if self.throttle is not None:
            self.throttle(response)
        if self.count is not None:
            self.count(response, [])
        return []

    async def leave_slowly(self, response: Response) -> list[Any]:
        """Return the parts of an answer that takes long to encode: that is done on a thread."""
        throttle = self.throttle
        throttle_ms = 0 if throttle is None else throttle(response)
        parts = await asyncio.to_thread(response.encode, throttle_ms)
        if self.count is not None:
            self.count(response, parts)
        if self._note is not None:
            self._note(response)
        return parts
