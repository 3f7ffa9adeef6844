"""The connections of a broker, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from moldau.broker.net.context import Context
from moldau.broker.net.exit import Exit
from moldau.broker.net.hangups import Hangups
from moldau.broker.net.input import Input
from moldau.broker.net.login_memory import LoginMemory
from moldau.broker.net.request_memory import RequestMemory
from moldau.broker.net.responses import Response
from moldau.broker.net.slow_requests import SlowRequests
from moldau.broker.net.turns import Turns
from moldau.broker.node import Node
from moldau.broker.security.audit import Audit
from moldau.broker.security.quotas import Quotas
from moldau.wire.primitives import Endpoint

TOO_OFTEN = "this address opens connections faster than its quota allows"
_IN_THE_WAY = "it did not authenticate, and another connection needs its place (max.connections)"
_IDLE = "it is idle, and a broker needs its place (max.connections)"
# A connection that waits for its end must not be read from before that.
_AFTER_S = 1.0
# The memory for requests before authentication: a part of that for all others, or at least so much.
_PART_BEFORE_LOGIN = 16
_LEAST_BEFORE_LOGIN = 1 << 20


class OpenConnection(Protocol):
    """One connection, for those who look after all of them."""

    context: Context
    input: Input
    active_at: float
    receiving_since: float

    @property
    def cold_reads(self) -> int:
        """How many slices of files a thread had to read before they were sent."""

    def finish(self) -> None:
        """End the connection at once, silently."""

    def close(self, reason: str) -> None:
        """End the connection at once and log why."""

    def mute(self, seconds: float) -> None:
        """Read nothing for a while."""

    def wind_down(self) -> None:
        """Accept no more requests, answer those in flight, then end: the broker is stopping."""

    def fenced(self) -> None:
        """Note that this broker no longer leads: a waiting answer may say that it does."""

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
        admit: Callable[[C, memoryview], None],
        commit: Callable[[Any], None],
        endpoints: Callable[[str], list[Endpoint]],
        beat: Beat,
        most: int,
    ) -> None:
        self.node = node
        self.enter = enter
        self.admit = admit
        self.commit = commit
        self.endpoints = endpoints
        self.beat = beat
        self.exit = Exit()
        self.on_close: list[Callable[[C], None]] = []
        # In the order in which they came.
        self._open: dict[C, None] = {}
        # Those of them whose clients have not said yet who they are, but have to.
        self.strangers: dict[C, None] = {}
        # Whether brokers have a listener to themselves.
        self.brokers_come_apart = False
        self._per_host: dict[str, int] = {}
        # Counts new connections by their addresses, if it is given.
        self.quotas: Quotas | None = None
        # Hears of logins that fail, if it is given.
        self.audit: Audit | None = None
        # The cold reads of connections that have ended.
        self._cold_reads = 0
        # The number of connections that the process has descriptors for, whatever max.connections
        # says.
        self._most = most
        self.request_memory = RequestMemory(
            lambda: node.settings.queued_max_request_bytes, self._open
        )
        self.login_memory = LoginMemory(
            lambda: max(
                node.settings.queued_max_request_bytes // _PART_BEFORE_LOGIN, _LEAST_BEFORE_LOGIN
            )
        )
        self.hangups = Hangups(node.loop.call_later)
        self.turns = Turns(node.loop)
        self.slow_requests = SlowRequests(lambda: node.settings.log_slow_request_ms)

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._open))

    def __contains__(self, connection: C) -> bool:
        return connection in self._open

    def __len__(self) -> int:
        return len(self._open)

    def register(self, connection: C, *, is_counted: bool = False) -> bool:
        """Take in a new connection; if it is one too many, return False and end it.

        One of an address that connects too often is ended only when it might connect again, as in
        Kafka: clients that retry at once are slowed down. `is_counted` says that the address has
        been asked about already."""
        self._open[connection] = None
        host = connection.context.client_host
        count = self._per_host[host] = self._per_host.get(host, 0) + 1
        if count > self.node.settings.most_connections_of(host):
            connection.close("the limit of max.connections.per.ip is reached")
            return False
        wait_s = 0.0 if is_counted else self.wait_s(host)
        for_broker = connection.context.is_inter_broker
        # Nobody makes room for one who has to wait.
        if not self.has_room(-1) and (wait_s or not self.make_room(for_broker)):
            connection.close("the limit of max.connections or of the system is reached")
            return False
        if wait_s:
            connection.mute(wait_s + _AFTER_S)
            self.node.loop.call_later(wait_s, self._end, connection)
        return not wait_s

    def wait_s(self, host: str) -> float:
        """Count a new connection of an address; return how long it has to wait for another."""
        return 0.0 if self.quotas is None else self.quotas.connect(host)

    def _end(self, connection: C) -> None:
        if connection in self._open:
            connection.close(TOO_OFTEN)

    def has_room(self, coming: int) -> bool:
        """Return whether there may be one more, beside so many that are still coming in."""
        most = min(self.node.settings.max_connections, self._most)
        return len(self._open) + coming < most

    def make_room(self, for_broker: bool) -> bool:
        """End the connection that has been about to log in for longest, so that nobody shuts others
        out by saying nothing. If there is none, a broker that comes by a listener of its own takes
        the place of the client that has been idle longest, as in Kafka. Return whether there is
        room now."""
        found = next(iter(self.strangers), None)
        if found is None and for_broker and self.brokers_come_apart:
            clients = (each for each in self._open if not each.context.is_inter_broker)
            found = min(clients, key=lambda each: each.active_at, default=None)
        if found is None:
            return False
        is_stranger = found in self.strangers
        self.strangers.pop(found, None)
        found.close(_IN_THE_WAY if is_stranger else _IDLE)
        return True

    def has_room_of(self, host: str, coming: int) -> bool:
        """Return whether there may be one more of an address, beside so many that are coming in."""
        return self._per_host.get(host, 0) + coming < self.node.settings.most_connections_of(host)

    def answered_late(self, response: Response) -> None:
        """Count an answer that left in another turn than its request came."""
        took_s = monotonic() - response.request.received_at
        self.slow_requests.note(response, took_s)
        if self.exit.metrics is not None:
            self.exit.metrics.late(response, took_s)

    @property
    def cold_reads(self) -> int:
        """How many slices of files the page cache did not hold, since the start."""
        return self._cold_reads + sum(each.cold_reads for each in self._open)

    def unregister(self, connection: C) -> None:
        if connection in self._open:
            self._cold_reads += connection.cold_reads
            del self._open[connection]
            self.strangers.pop(connection, None)
            host = connection.context.peer_host or connection.context.client_host
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]
        self.request_memory.forget(connection)
        for closed in self.on_close:
            closed(connection)
