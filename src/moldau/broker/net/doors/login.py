"""The login of a connection: what it may do before its client has proved who it is, and how long.

Until then it is given nothing but ApiVersions and the requests of SASL, in small frames and for a
short while. A session that ends brings it back to that state, but for the size of frames: what is
under way may be large.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from moldau.broker.net.connections import Connections
from moldau.broker.net.context import Context
from moldau.broker.net.frames import PREFIX
from moldau.broker.net.input import BUSY, Input
from moldau.broker.net.request import Request
from moldau.broker.net.responses import Response
from moldau.broker.security.principal import Principal
from moldau.broker.security.sasl.mechanism import AuthenticationFailed
from moldau.broker.security.sasl.sasl import Authentication, SaslDoor
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.broker")

Enter = Callable[[Any, memoryview], None]


class LoginRefused(Response):
    """The answer to a client that does not get in."""

    __slots__ = ("_code",)

    def __init__(self, request: Request, code: Error) -> None:
        super().__init__(request)
        self._code = code

    def errors(self) -> Iterator[int]:
        yield self._code


class Guarded(Protocol):
    """A connection, as far as its login is concerned."""

    context: Context
    input: Input
    # When bytes came last; when it was taken, before there are any.
    active_at: float

    def reserve(self, response: Response, held: int = 0) -> None: ...

    def gate(self, enter: Enter, limit: int) -> None:
        """Handle requests by this function from now on, none larger than that; 0 is any."""

    def respond(self, response: Response, parts: list[Any]) -> None: ...

    def wind_down(self) -> None: ...

    def close(self, reason: str) -> None: ...


class Login:
    """One connection's. Event loop only."""

    __slots__ = ("_all", "_connection", "_is_told", "_loop", "_timer", "authentication", "door")

    def __init__(self, connection: Guarded, connections: Connections[Any], door: SaslDoor) -> None:
        self._connection = connection
        self._all = connections
        self._loop = connections.node.loop
        self.door = door
        self.authentication = Authentication(door)
        self._is_told = False
        connections.strangers[connection] = None
        connection.gate(connections.admit, door.max_receive_size)
        connection.input.draw_on(
            connections.login_memory.share_of(connection), door.max_receive_size + PREFIX
        )
        reason = f"it did not authenticate within {door.timeout_s:g} s"
        # What a handshake of TLS took before is part of it.
        deadline = connection.active_at + door.timeout_s
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(
            deadline, connection.close, reason
        )

    def succeed(self, principal: Principal, lifetime_ms: int) -> None:
        """Let the client in, for so long; 0 is for ever."""
        self._is_told = False
        context, mechanism = self._connection.context, self.authentication.mechanism
        if self._all.audit is not None:
            self._all.audit.login_admitted(
                context.client_host, context.listener, mechanism, principal
            )
        self._all.strangers.pop(self._connection, None)
        self._connection.context.become(principal)
        self._connection.gate(self._all.enter, 0)
        self._connection.input.draw_on(self._all.request_memory, BUSY)
        self.stop()
        if lifetime_ms:
            self._timer = self._loop.call_later(lifetime_ms / 1000, self._expire)

    def fail(self, response: LoginRefused, parts: list[Any], problem: AuthenticationFailed) -> None:
        """Answer that the client is not who it says, after a while, and end the connection."""
        connection = self._connection
        self.tell(problem)
        self.stop()
        connection.reserve(response)
        connection.wind_down()
        self._timer = self._loop.call_later(self.door.delay_s, connection.respond, response, parts)

    def tell(self, problem: AuthenticationFailed) -> None:
        """Tell the log and the audit why the client does not get in, once."""
        if self._is_told:
            return
        self._is_told = True
        context, mechanism = self._connection.context, self.authentication.mechanism
        if self._all.audit is not None:
            self._all.audit.login_refused(
                context.client_host, context.listener, mechanism, problem.reason, problem.user
            )
        if self._all.hangups.note(context.client_host, problem.reason):
            logger.warning("authentication from %s failed: %s", context.client, problem)

    def stop(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.authentication.expire()
        self._connection.gate(self._all.admit, 0)
