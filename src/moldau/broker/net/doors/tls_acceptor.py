"""The acceptor of a TLS listener: takes connections, and hands them on after the handshake.

A connection counts from the moment that it is taken, since a handshake costs more than most
requests. Only a few are taken in one round of the loop, so that a crowd at the door does not keep
those inside waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any, Protocol

from moldau.broker.net.connections import TOO_OFTEN
from moldau.broker.net.context import plain_host
from moldau.broker.net.doors.tls_contexts import TlsContexts
from moldau.broker.net.hangups import Hangups
from moldau.security.alerts import alert_of
from moldau.security.tls import problem_in_words, proves_nobody

logger = logging.getLogger("moldau.broker")

_MOST_IN_ROUND = 8
# How long to wait when the system has no more descriptors.
_EXHAUSTED_S = 0.2
# How long a closing side waits for the other to say that it closes, too.
_SHUTDOWN_S = 1.0
_UNREAD = 16 << 10


class Crowd(Protocol):
    """All connections of a listener's kind, those inside and those at the door."""

    hangups: Hangups

    def has_room(self, coming: int) -> bool:
        """Return whether there may be one more, beside so many that are still coming in."""

    def has_room_of(self, host: str, coming: int) -> bool:
        """Return whether there may be one more of an address, beside so many that are coming."""

    def wait_s(self, host: str) -> float:
        """Count a new connection of an address; return how long it has to wait for another."""

    def __contains__(self, connection: Any) -> bool:
        """Return whether a connection is inside."""


class TlsAcceptor:
    """The door of one listener, open from `serve` to `close`. Event loop only.

    Given `make_room`, one more connection than there may be takes the place of the oldest at the
    door, or of one that `make_room` ends; otherwise it is closed. `refused` is told the address and
    the reason when a client's certificate proves nobody.
    """

    def __init__(
        self,
        connections: Crowd,
        contexts: TlsContexts,
        connect: Callable[[], asyncio.BaseProtocol],
        timeout_s: float,
        make_room: Callable[[], bool] | None = None,
        refused: Callable[[str, str], None] | None = None,
    ) -> None:
        self._refused = refused
        self._connections = connections
        self._make_room = make_room
        self._contexts = contexts
        self._connect = connect
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        # In the order in which they came, with the addresses.
        self._handshakes: dict[asyncio.Task[None], str] = {}
        # Those of addresses that connect too often, until they are closed.
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        # What is at the door, by address: connections before the end of their handshake, and the
        # sockets that are held.
        self._coming: dict[str, set[object]] = {}

    def serve(self, sockets: list[socket.socket]) -> None:
        """Take connections from these sockets, which belong to the acceptor from now on."""
        self._sockets = sockets
        for each in sockets:
            each.setblocking(False)
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Take no further connection, and end those that have not got through yet."""
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets = []
        for handshake in self._handshakes:
            handshake.cancel()
        for held, timer in self._held.items():
            timer.cancel()
            held.close()
        self._held.clear()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_MOST_IN_ROUND):
            try:
                accepted, (host, *_) = listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as reason:
                self._refuse("anybody", f"it cannot be accepted: {reason}")
                self._loop.remove_reader(listening)
                self._loop.call_later(_EXHAUSTED_S, self._accept_again, listening)
                return
            host = plain_host(host)
            if not self._has_room_of(host):
                accepted.close()
                self._refuse(host, "the limit of max.connections.per.ip is reached")
                continue
            wait_s = self._connections.wait_s(host)
            coming = len(self._handshakes) + len(self._held)
            # Nobody makes room for one who has to wait.
            if not self._connections.has_room(coming) and (wait_s or not self._has_made_room()):
                accepted.close()
                self._refuse(host, "the limit of max.connections or of the system is reached")
                continue
            if wait_s:
                self._coming.setdefault(host, set()).add(accepted)
                timer = self._loop.call_later(wait_s, self._let_go, accepted, host)
                self._held[accepted] = timer
                continue
            accepted.setblocking(False)
            connection = self._connect()
            self._coming.setdefault(host, set()).add(connection)
            handshake = self._loop.create_task(self._greet(accepted, host, connection))
            self._handshakes[handshake] = host
            handshake.add_done_callback(self._greeted)

    def _greeted(self, handshake: asyncio.Task[None]) -> None:
        self._handshakes.pop(handshake, None)

    def _has_made_room(self) -> bool:
        if self._make_room is None:
            return False
        for oldest, host in self._handshakes.items():
            del self._handshakes[oldest]
            oldest.cancel()
            self._refuse(
                host, "its TLS handshake has not finished, and another connection needs its place"
            )
            return True
        return self._make_room()

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _let_go(self, held: socket.socket, host: str) -> None:
        if self._held.pop(held, None) is not None:
            self._came(host, held)
            held.close()
            self._refuse(host, TOO_OFTEN)

    def _has_room_of(self, host: str) -> bool:
        coming = self._coming.get(host, ())
        if self._connections.has_room_of(host, len(coming)):
            return True
        # One that has just come in counts there already.
        at_door = sum(each not in self._connections for each in coming)
        return self._connections.has_room_of(host, at_door)

    def _came(self, host: str, coming: object) -> None:
        others = self._coming[host]
        others.discard(coming)
        if not others:
            del self._coming[host]

    async def _greet(
        self, accepted: socket.socket, host: str, connection: asyncio.BaseProtocol
    ) -> None:
        # The transport owns the socket, and closes it whatever comes of the handshake. With a
        # second descriptor the client can be told after that why it failed.
        try:
            own = accepted.dup()
        except OSError as reason:
            accepted.close()
            self._came(host, connection)
            self._refuse(host, f"it cannot be accepted: {reason}")
            return
        with own:
            try:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self._contexts.current,
                    ssl_handshake_timeout=self._timeout_s,
                    ssl_shutdown_timeout=_SHUTDOWN_S,
                )
            except OSError as problem:
                words = problem_in_words(problem)
                self._refuse(host, f"the TLS handshake failed: {words}")
                if self._refused is not None and proves_nobody(problem):
                    self._refused(host, words)
                alert = alert_of(problem)
                if alert:
                    await self._tell(own, alert)
            finally:
                self._came(host, connection)

    async def _tell(self, own: socket.socket, alert: bytes) -> None:
        """Send an alert, and wait for a moment until the client has closed, too.

        Closing at once, while something of the client's is unread, would take the alert back.
        """
        own.setblocking(False)
        with contextlib.suppress(OSError, TimeoutError):
            # Nothing was sent for a while: it fits into the socket's buffer, or the client is gone.
            own.send(alert)
            own.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_SHUTDOWN_S):
                while await self._loop.sock_recv(own, _UNREAD):
                    pass

    def _refuse(self, host: str, reason: str) -> None:
        if self._connections.hangups.note(host, reason):
            logger.warning("closing connection from %s: %s", host, reason)
