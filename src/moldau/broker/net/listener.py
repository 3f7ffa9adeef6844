"""Listeners: the addresses where clients reach a broker, each under a name of its own."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol

from moldau.broker.net.outputs.output import OutputForm
from moldau.broker.security.audit import Audit
from moldau.broker.security.credentials import Credentials
from moldau.broker.security.principal import Principal
from moldau.broker.security.sasl.sasl import SaslDoor

# Connections that may wait to be taken.
_BACKLOG = 1024


class CannotListen(OSError):
    """An address that cannot be taken; `errno` says why, and `flag` how to choose another."""

    def __init__(self, host: str, port: int, reason: OSError, flag: str = "--listen") -> None:
        super().__init__(reason.errno, f"cannot listen on {host}:{port}: {reason}")
        self.host = host
        self.port = port
        self.flag = flag


class Acceptor(Protocol):
    """Takes the connections of a listener in place of the loop."""

    def serve(self, sockets: list[socket.socket]) -> None: ...

    def close(self) -> None: ...


class Door(Protocol):
    """How clients of a listener prove who they are; by SASL, too, if there is any of that."""

    credentials: Credentials
    secret: Callable[[], bytes]
    sasl: SaslDoor | None
    audit: Audit | None

    def configure(self, given: Mapping[str, str]) -> None:
        """Take in settings that were changed while the broker runs."""

    async def prepare(self) -> None:
        """Load what has changed before the listener is open."""

    def watches(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Return the work that goes on as long as the listener is open."""

    def acceptor(
        self, connections: Any, connect: Callable[[], asyncio.BaseProtocol], for_brokers: bool
    ) -> Acceptor | None:
        """Return what takes the connections, if the loop cannot do it alone; brokers come in by it
        if it is `for_brokers`."""

    def principal_of(self, transport: asyncio.BaseTransport) -> Principal:
        """Return who a client is by its connection alone; ValueError if that is nobody."""


class Listener:
    """One address, taken with `bind`, and open from `serve` to `close`. Event loop only.

    Between the two, whoever connects waits. Port 0 takes a free one, which `port` is after `bind`.
    Clients are told the `advertised` address; if there is none, the one that they reached.
    Connections that come in here send by the form of `output`. By the one that `is_inter_broker`
    other brokers come in. Without a `door` everybody may come in and is nobody. `acceptor` takes
    connections where the loop cannot do it alone.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        advertised: tuple[str, int] | None,
        output: OutputForm,
        *,
        protocol: str = "PLAINTEXT",
        is_inter_broker: bool = False,
        door: Door | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.advertised = advertised
        self.output = output
        self.protocol = protocol
        self.is_inter_broker = is_inter_broker
        self.door = door
        self.acceptor: Acceptor | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """HOST:PORT, with an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_bound(self) -> bool:
        return self._server is not None

    async def bind(
        self, loop: asyncio.AbstractEventLoop, connect: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """Take the address; `connect` makes the protocol of each connection."""
        try:
            self._server = await loop.create_server(
                connect, self.host, self.port, backlog=_BACKLOG, start_serving=False
            )
        except OSError as reason:
            raise CannotListen(self.host, self.port, reason) from reason
        for each in self._server.sockets:
            with socket.socket(fileno=os.dup(each.fileno())) as own:
                own.listen(_BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]
        if self.advertised is not None and not self.advertised[1]:
            # As in Kafka; nobody could connect to port 0.
            self.advertised = (self.advertised[0], self.port)

    async def serve(self) -> None:
        """Take the connections that wait, and all that come."""
        assert self._server is not None
        if self.acceptor is None:
            await self._server.start_serving()
            return
        listening = self._server.sockets
        self.acceptor.serve([socket.socket(fileno=os.dup(each.fileno())) for each in listening])

    def close(self) -> None:
        """Take no further connection."""
        if self.acceptor is not None:
            self.acceptor.close()
        if self._server is not None:
            self._server.close()
            self._server = None


def in_words(listeners: Sequence[Listener]) -> str:
    """Return the addresses of listeners: HOST:PORT where there is only one, else with their
    names."""
    if len(listeners) == 1:
        return listeners[0].address
    return ",".join(f"{each.name}://{each.address}" for each in listeners)
