"""The HTTP server: starlette on uvicorn's connections, in the loop that is running."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from uvicorn.config import Config
from uvicorn.server import ServerState

from moldau.broker.net.doors.tls_acceptor import TlsAcceptor
from moldau.broker.net.doors.tls_contexts import TlsContexts
from moldau.broker.net.hangups import Hangups
from moldau.broker.net.listener import CannotListen, Listener
from moldau.broker.net.outputs.transport_output import TransportOutput
from moldau.broker.security.principal import Principal
from moldau.broker.settings.http import HTTP
from moldau.http.access import Access, Authenticator
from moldau.http.answers import error
from moldau.http.connection import HttpConnection
from moldau.http.limits import Limits

logger = logging.getLogger("moldau.http")

# How long a connection may rest between two requests.
_KEEP_ALIVE_S = 75
_MOST_HEADER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How much anybody may ask of a server."""

    connections: int = 200
    body_bytes: int = 4 << 20
    timeout_s: float = 30.0
    # How many connections one address may have.
    of_address: Callable[[str], int] | None = None


class HttpServer:
    """One address with some routes, open from `start` to `stop`. Event loop only.

    Without an authenticator everybody is whom `principal_of` their connection says, or ANONYMOUS;
    with one, some paths may be `is_open` all the same. With TLS contexts it is HTTPS. `address_in`
    reads the tokens of those who ask for others. `refused` is told the address and the reason when
    a client's certificate proves nobody.
    """

    def __init__(
        self,
        host: str,
        port: int,
        routes: Sequence[BaseRoute],
        limits: HttpLimits,
        hangups: Hangups,
        authenticator: Authenticator | None = None,
        contexts: TlsContexts | None = None,
        principal_of: Callable[[asyncio.BaseTransport], Principal] | None = None,
        is_open: Callable[[str], bool] | None = None,
        address_in: Callable[[str], str | None] | None = None,
        refused: Callable[[str, str], None] | None = None,
    ) -> None:
        self._refused = refused
        self._listener = Listener(HTTP, host, port, None, TransportOutput)
        self._limits = limits
        self._contexts = contexts
        self.hangups = hangups
        self._state = ServerState()
        app = Starlette(
            routes=routes,
            middleware=[
                Middleware(Limits, limits.body_bytes, limits.timeout_s),
                Middleware(Access, authenticator, is_open, address_in),
            ],
            exception_handlers={HTTPException: _refuse, Exception: _fail},
        )
        config = Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http=HttpConnection,
            interface="asgi3",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        )
        config.load()
        self._connect = partial(
            HttpConnection,
            config,
            self._state,
            self._refusal,
            limits.timeout_s,
            self._hung_up,
            principal_of,
        )

    @property
    def address(self) -> str:
        return self._listener.address

    @property
    def host(self) -> str:
        return self._listener.host

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def url(self) -> str:
        return f"{'http' if self._contexts is None else 'https'}://{self.address}"

    def wait_s(self, host: str) -> float:
        """Return 0: connections to the HTTP side have no quota."""
        return 0.0

    def has_room_of(self, host: str, coming: int) -> bool:
        """Return whether there may be one more of an address, beside so many that are coming in."""
        most = self._limits.of_address
        return most is None or self._count_of(host) + coming < most(host)

    def _count_of(self, host: str) -> int:
        return sum(each.address == host for each in self._inside)

    @property
    def _inside(self) -> Collection[HttpConnection]:
        return cast(Collection[HttpConnection], self._state.connections)

    def _refusal(self, newcomer: HttpConnection) -> str | None:
        """Return why a connection that has just come in may not stay."""
        if len(self._inside) > self._limits.connections and not self._make_room(newcomer):
            return "the limit of http.max.connections is reached"
        if not self.has_room_of(newcomer.address, -1):
            return "the limit of max.connections.per.ip is reached"
        return None

    def _make_room(self, newcomer: HttpConnection | None = None) -> bool:
        """End a connection that only waits, so that nobody shuts others out by saying nothing: the
        oldest of the address that has most of them. Return whether there was one."""
        waiting = [each for each in self._inside if each.is_waiting and each is not newcomer]
        if not waiting:
            return False
        counts = Counter(each.address for each in waiting)
        ended = min(waiting, key=lambda each: (-counts[each.address], each.idle_since))
        self._state.connections.discard(ended)
        ended.give_way()
        return True

    def __contains__(self, connection: HttpConnection) -> bool:
        return connection in self._state.connections

    def has_room(self, coming: int) -> bool:
        """Return whether there may be one more connection, beside so many that are coming in."""
        return len(self._state.connections) + coming < self._limits.connections

    async def start(self) -> None:
        """Take the address and answer."""
        try:
            await self._listener.bind(asyncio.get_running_loop(), self._connect)
        except CannotListen as problem:
            problem.flag = "--http"
            raise
        if self._contexts is not None:
            self._listener.acceptor = TlsAcceptor(
                self,
                self._contexts,
                self._connect,
                self._limits.timeout_s,
                self._make_room,
                self._refused,
            )
        await self._listener.serve()
        logger.info("HTTP on %s", self.url)

    async def stop(self) -> None:
        """Take no more requests, and end those that are under way."""
        self._listener.close()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.close()

    def _hung_up(self, address: str, reason: str) -> None:
        if self.hangups.note(address, f"HTTP: {reason}"):
            logger.warning("closing HTTP connection from %s: %s", address, reason)


async def _refuse(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return error(problem.status_code, problem.detail, problem.headers)


async def _fail(request: Request, problem: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=problem)
    return error(500, f"{type(problem).__name__}; see the broker's log")
