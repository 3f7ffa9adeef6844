"""The connections of a broker, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from moldau.broker.net.context import Context
from moldau.broker.net.exit import Exit
from moldau.broker.net.hangups import Hangups
from moldau.broker.net.input import Input
from moldau.broker.net.request_memory import RequestMemory
from moldau.broker.net.turns import Turns
from moldau.broker.node import Node
from moldau.wire.primitives import Endpoint


class OpenConnection(Protocol):
    """One connection, for those who look after all of them."""

    context: Context
    input: Input
    active_at: float
    receiving_since: float

    def finish(self) -> None:
        """End the connection at once, silently."""

    def close(self, reason: str) -> None:
        """End the connection at once and log why."""

    def wind_down(self) -> None:
        """Accept no more requests, answer those in flight, then end: the broker is stopping."""

    def fenced(self) -> None:
        """This broker leads no more: an answer that waits for its turn may say that it does."""

    def take_memory(self) -> None:
        """There is memory for the request that waits."""


C = TypeVar("C", bound=OpenConnection)


class Beat(Protocol):
    """Whoever watches the loop, and looks less often while it is idle."""

    is_idle: bool

    def rouse(self) -> None:
        """The loop has something to do."""


class Connections(Generic[C]):
    """All that are open. Event loop only.

    `enter` handles a request of a connection, and `commit` writes what requests have staged;
    `endpoints` are those of all brokers, by the name of a listener.
    `on_close` is called with each connection that has ended.
    """

    def __init__(
        self,
        node: Node,
        enter: Callable[[C, memoryview], None],
        commit: Callable[[Any], None],
        endpoints: Callable[[str], list[Endpoint]],
        beat: Beat,
        most: int,
    ) -> None:
        self.node = node
        self.enter = enter
        self.commit = commit
        self.endpoints = endpoints
        self.beat = beat
        self.exit = Exit()
        self.on_close: list[Callable[[C], None]] = []
        self._open: set[C] = set()
        # The number of connections that the process has descriptors for, whatever max.connections
        # says.
        self._most = most
        self.request_memory = RequestMemory(
            lambda: node.settings.queued_max_request_bytes, self._open
        )
        self.hangups = Hangups(node.loop.call_later)
        self.turns = Turns(node.loop)

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._open))

    def __contains__(self, connection: C) -> bool:
        return connection in self._open

    def __len__(self) -> int:
        return len(self._open)

    def register(self, connection: C) -> bool:
        """Count a new connection; False if there are too many."""
        self._open.add(connection)
        return len(self._open) <= min(self.node.settings.max_connections, self._most)

    def unregister(self, connection: C) -> None:
        self._open.discard(connection)
        self.request_memory.forget(connection)
        for closed in self.on_close:
            closed(connection)
