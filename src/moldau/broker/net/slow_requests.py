"""Slow requests: those that took long to answer, named with what they waited for.

A request that is answered in the turn in which it came can only be slow because the event loop was
held; see `moldau.broker.upkeep.stalls`. So only answers that come later are looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from moldau.broker.net.responses import Response
from moldau.wire.apis import Api

logger = logging.getLogger("moldau.broker")

# Between two lines.
_QUIET_S = 10.0


class SlowRequests:
    """The slow requests of all connections. Event loop only. `limit_ms` may change."""

    __slots__ = ("_limit_ms", "_quiet_until", "_untold", "count")

    def __init__(self, limit_ms: Callable[[], int]) -> None:
        self._limit_ms = limit_ms
        self._quiet_until = 0.0
        self._untold = 0
        self.count = 0

    def note(self, response: Response, took_s: float) -> None:
        """Log the request if it was slow for another reason than what its client asked for."""
        if took_s * 1000 < self._limit_ms():
            return
        cause = response.waited_for()
        if cause is None:
            return
        self.count += 1
        now = monotonic()
        if now < self._quiet_until:
            self._untold += 1
            return
        request = response.request
        more = f"; {self._untold} more since the last line about them" if self._untold else ""
        logger.warning(
            "slow request: %s v%d from %s (client %r) took %.0f ms: %s%s",
            Api(request.api).name, request.version, request.context.client, request.client_id,
            took_s * 1000, cause, more,
            extra={
                "api": Api(request.api).name, "client": request.context.client,
                "client_id": request.client_id, "took_ms": round(took_s * 1000), "cause": cause,
            },
        )  # fmt: skip
        self._untold = 0
        self._quiet_until = now + _QUIET_S
