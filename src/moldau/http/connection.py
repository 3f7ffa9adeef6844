"""HTTP connections: uvicorn's, with limits on how many there are and how slow each may be."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from moldau.broker.security.principal import Principal

# What uvicorn logs of single requests would let anybody fill the log.
_silent = logging.getLogger("moldau.http.silent")
_silent.setLevel(logging.CRITICAL + 1)
# A request that takes too long is told so; who does not take even that is cut off a little later.
_GRACE = 1.5
# The conversation of connections that have ended.
_NOTHING = h11.Connection(h11.SERVER)


class HttpConnection(H11Protocol):
    """One connection. It is ended if it is one too many, or if a request takes too long: from its
    first byte, or from the start of the connection, until its answer has been taken. `idle_since`
    is when it was made, or its last answer was complete, by a finer clock than the loop's, which
    counts milliseconds.

    `refusal` says why a new one may not stay, None if it may. `hung_up` is told the address and the
    reason whenever a client is at fault. `principal_of` says who a client is by its connection
    alone; ValueError if that is nobody.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        refusal: Callable[[HttpConnection], str | None],
        timeout_s: float,
        hung_up: Callable[[str, str], None],
        principal_of: Callable[[asyncio.BaseTransport], Principal] | None = None,
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.logger = _silent
        self._refusal = refusal
        self._timeout_s = timeout_s
        self._hung_up = hung_up
        self._principal_of = principal_of
        self._deadline: asyncio.TimerHandle | None = None
        self.idle_since = time.monotonic()
        self.app_state = {"lift_deadline": self._end}

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        reason = self._refusal(self)
        if reason is not None:
            self._abort(reason)
            return
        if self._principal_of is not None:
            try:
                self.app_state["principal"] = self._principal_of(transport)
            except ValueError as reason:
                self._abort(str(reason))
                return
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)
        # These refer to each other and to what was received, and the collector may take its time.
        if self.cycle is not None:
            self.cycle.body = bytearray()
        self.cycle = self.scope = self.headers = None  # type: ignore[assignment]
        self.conn = _NOTHING
        self.app_state = {}

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            # It went on with nonsense after its answer was sent: there is no room for another.
            self._abort("not HTTP")
            return
        self._watch()

    @property
    def is_waiting(self) -> bool:
        """Whether there is no whole request that is being answered."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def give_way(self) -> None:
        """End: others need the place of one who only waits."""
        self._abort("it sent no request, and another connection needs its place")

    def on_response_complete(self) -> None:
        self._end()
        self.idle_since = time.monotonic()
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        problem = sys.exception()
        if problem is not None:
            # h11 raises an error that refers to itself by its frames, which have what was received.
            traceback.clear_frames(problem.__traceback__)
            problem.__traceback__ = None
        self._hung_up(self.address, "not HTTP, or its headers are too large")
        super().send_400_response(msg)

    @property
    def address(self) -> str:
        """The client's."""
        return self.client[0] if self.client else "?"

    def _watch(self) -> None:
        conn = self.conn
        if conn.our_state is conn.their_state is h11.IDLE and not conn.trailing_data[0]:
            self._end()
        elif self._deadline is None and not self.transport.is_closing():
            self._begin()

    def _begin(self) -> None:
        self._deadline = self.loop.call_later(self._timeout_s * _GRACE, self._too_slow)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._abort(f"a request took longer than {self._timeout_s:g} s")

    def _abort(self, reason: str) -> None:
        self._hung_up(self.address, reason)
        self.transport.abort()
