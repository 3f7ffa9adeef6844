"""kazoo's client, as far as Moldau's sessions use it, over the simulated network."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kazoo.client import KazooState
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss
from kazoo.protocol.states import EventType

from moldau.cluster.zookeeper.sessions.operations import Check, Create, Delete, Operation, SetData
from tests.simulation.core.loop import Step, VirtualLoop
from tests.simulation.core.process import Process
from tests.simulation.network.network import Network
from tests.simulation.zookeeper.ensemble import Ensemble, Server, Session

_RETRY_S = 0.1
_EVENT = SimpleNamespace(type=EventType.CHANGED)


class Result:
    """What an asynchronous call of kazoo's returns."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self._links: list[Callable[[Result], None]] = []
        self.is_ready = False

    def rawlink(self, link: Callable[[Result], None]) -> None:
        if self.is_ready:
            link(self)
        else:
            self._links.append(link)

    def settle(self, value: Any, problem: Exception | None) -> None:
        if not self.is_ready:
            self.is_ready = True
            self.value, self.exception = value, problem
            for link in self._links:
                link(self)


class Connection:
    """A client's connection to one server. What it sends and hears keeps its order."""

    def __init__(self, client: Client, server: Server, session: Session) -> None:
        self._client = client
        self.server = server
        self.session = session
        # A session has one connection: what comes by an earlier one is refused.
        self.number = session.connections
        self.is_open = True
        self.asked: dict[Result, float] = {}
        self.watchers: dict[tuple[str, str], dict[Any, None]] = {}
        server.connections[self] = None
        self._to: list[Callable[[], object]] = []
        self._back: list[Callable[[], object]] = []

    def ask(self, arrive: Callable[[Callable[[Any, Exception | None], None]], None]) -> Result:
        client = self._client
        result = Result()
        self.asked[result] = client.loop.now_s

        def answer(value: Any, problem: Exception | None) -> None:
            self._send_back(lambda: self._answered(result, value, problem))

        def arrived() -> None:
            if self in self.server.connections and self.number == self.session.connections:
                arrive(answer)

        self._to.append(arrived)
        client.network.carry(client.process.machine, self.server.machine, self._next)
        return result

    def _next(self) -> None:
        self._to.pop(0)()

    def _send_back(self, arrive: Callable[[], object]) -> None:
        self._back.append(arrive)
        client = self._client
        client.network.carry(self.server.machine, client.process.machine, self._next_back)

    def _next_back(self) -> None:
        arrive = self._back.pop(0)
        if self.is_open:
            self._client.loop.soon_in(self._client.process, arrive)

    def _answered(self, result: Result, value: Any, problem: Exception | None) -> None:
        self.asked.pop(result, None)
        if self.is_open:
            result.settle(value, problem)

    def tell(self, event: str, path: str) -> None:
        """A watched node has changed."""
        self._send_back(lambda: self._fire(event, path))

    def _fire(self, event: str, path: str) -> None:
        kinds = (
            ("data", "child")
            if event == "deleted"
            else ("child",)
            if event == "child"
            else ("data",)
        )
        for kind in kinds:
            for watcher in self.watchers.pop((kind, path), ()):
                watcher(_EVENT)

    def expired(self) -> None:
        """The session has ended while this connection was open."""
        self._send_back(lambda: self._client.expired(self))

    def cut_short(self) -> None:
        """The server hears that the client's process is gone."""
        self.server.connections.pop(self, None)

    def close(self, *, is_reset: bool = False) -> None:
        """End it on this side; what was sent before still arrives, unless it is reset."""
        client, server = self._client, self.server
        self.is_open = False
        if is_reset:
            server.connections.pop(self, None)
        else:
            self._to.append(lambda: server.connections.pop(self, None))
            client.network.carry(client.process.machine, server.machine, self._next)
        asked, self.asked = self.asked, {}
        self.watchers.clear()
        for result in asked:
            result.settle(None, ConnectionLoss())


class Client:
    """A client of the ensemble, in one process. It connects again by itself, as kazoo does."""

    # Everybody may read and write every node.
    default_acl = None

    def __init__(
        self,
        process: Process,
        network: Network,
        ensemble: Ensemble,
        dice: random.Random,
        timeout_s: float,
        on_granted: Callable[[float], None],
    ) -> None:
        self.process = process
        self.network = network
        self.loop: VirtualLoop = network._loop
        self.ensemble = ensemble
        self._dice = dice
        self._timeout_s = timeout_s
        self._on_granted = on_granted
        self._listeners: list[Callable[[str], None]] = []
        self.connection: Connection | None = None
        self._session: Session | None = None
        self._seen_zxid = 0
        self._is_stopped = False
        self._state = KazooState.LOST
        self._watchdog: Step | None = None

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return (self._session.id, b"") if self._session is not None else None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start_async(self) -> None:
        self._connect()

    # -- the connection

    def _connect(self) -> None:
        if self._is_stopped or self.connection is not None:
            return
        server = self._dice.choice(self.ensemble.servers)
        loop, process = self.loop, self.process
        attempt = SimpleNamespace(is_over=False)

        def arrived() -> None:
            """At the server: it needs the leader to know the session."""
            if server.is_cut_off or attempt.is_over or not process.is_alive:
                return
            session = self._session
            if server.tree.zxid < self._seen_zxid:
                return
            if session is not None and session.is_over:
                self.network.carry(
                    server.machine, process.machine, lambda: loop.soon_in(process, refused)
                )
                return
            if session is None:
                session = self.ensemble.begin(self._timeout_s, process.machine)
            self.ensemble.hear(session)
            session.connections += 1
            granted = session
            self.network.carry(
                server.machine, process.machine, lambda: loop.soon_in(process, welcome, granted)
            )

        def refused() -> None:
            if not attempt.is_over:
                attempt.is_over = True
                self._session = None
                self._tell(KazooState.LOST)
                self._connect()

        def welcome(session: Session) -> None:
            if attempt.is_over or self._is_stopped or self.connection is not None:
                return
            attempt.is_over = True
            self._session = session
            self.connection = Connection(self, server, session)
            self._on_granted(self._timeout_s)
            self._tell(KazooState.CONNECTED)
            self._watch_server()

        def give_up() -> None:
            if not attempt.is_over:
                attempt.is_over = True
                self._connect()

        loop.later_in(process, self._timeout_s / 4, give_up)
        self.network.carry(process.machine, server.machine, arrived)

    def _watch_server(self) -> None:
        """Drop a server that has not answered for two thirds of a session's length."""
        connection = self.connection
        if connection is None or self._is_stopped:
            return
        patience_s = self._timeout_s * 2 / 3
        if connection.asked and self.loop.now_s - min(connection.asked.values()) > patience_s:
            self.drop()
            return
        self._watchdog = self.loop.later_in(self.process, patience_s / 4, self._watch_server)

    def drop(self, *, is_reset: bool = False) -> None:
        """The connection broke."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._seen_zxid = max(self._seen_zxid, connection.server.tree.zxid)
        self._tell(KazooState.SUSPENDED)
        connection.close(is_reset=is_reset)
        self.loop.later_in(self.process, self._dice.random() * _RETRY_S, self._connect)

    def expired(self, connection: Connection) -> None:
        if self.connection is connection:
            self.drop()
            self._session = None
            self._tell(KazooState.LOST)

    def _tell(self, state: str) -> None:
        if state != self._state:
            self._state = state
            for listener in list(self._listeners):
                listener(state)

    def stop(self) -> None:
        """Say goodbye, which ends the session at once."""
        self._is_stopped = True
        connection, session = self.connection, self._session
        if connection is not None and session is not None:
            connection.ask(lambda answer: self.ensemble.end(session))
            self.connection = None
            connection.is_open = False
            self._tell(KazooState.LOST)

    def close(self) -> None:
        """There is nothing left to let go of."""

    # -- calls

    def _ask(self, arrive: Callable[[Connection, Any], None]) -> Result:
        connection = self.connection
        if connection is None:
            result = Result()
            result.settle(None, ConnectionClosedError("closed"))
            return result
        return connection.ask(lambda answer: arrive(connection, answer))

    def _read(self, kind: str, path: str, watch: Any) -> Result:
        def arrive(connection: Connection, answer: Any) -> None:
            def answered(value: Any, problem: Exception | None) -> None:
                answer(value, problem)

            self.ensemble.read(connection, kind, path, watch is not None, answered)

        result = self._ask(arrive)
        connection = self.connection
        if watch is not None and connection is not None:
            held = connection

            def note(done: Result) -> None:
                # kazoo keeps a watcher of what is not there only for `exists`.
                if done.exception is None and held.is_open:
                    family = "child" if kind == "children" else "data"
                    held.watchers.setdefault((family, path), {})[watch] = None

            result.rawlink(note)
        return result

    def get_async(self, path: str, watch: Any = None) -> Result:
        return self._read("get", path, watch)

    def exists_async(self, path: str, watch: Any = None) -> Result:
        return self._read("exists", path, watch)

    def get_children_async(self, path: str, watch: Any = None) -> Result:
        return self._read("children", path, watch)

    def sync_async(self, path: str) -> Result:
        return self._ask(self.ensemble.sync)

    def transaction(self) -> Transaction:
        return Transaction(self)


class Transaction:
    """A transaction that is put together and then sent."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._operations: list[Operation] = []

    def create(self, path: str, data: bytes, *, ephemeral: bool, sequence: bool) -> None:
        self._operations.append(Create(path, data, ephemeral, sequence))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self._operations.append(SetData(path, data, version))

    def delete(self, path: str, version: int) -> None:
        self._operations.append(Delete(path, version))

    def check(self, path: str, version: int) -> None:
        self._operations.append(Check(path, version))

    def commit_async(self) -> Result:
        client = self._client
        return client._ask(
            lambda connection, answer: client.ensemble.write(connection, self._operations, answer)
        )
