"""A simulated ZooKeeper ensemble: a leader that orders transactions, servers that lag behind it.

Sessions belong to the ensemble, connections to one server. A write is decided at once by the leader
and answered by the client's server when that has applied it; a read is answered by the server from
what it has applied, which may be old. A server tells of a watch when it applies the change, before
it answers anything from after it. The leader ends sessions that it has not heard of for their
length, and with them their ephemeral nodes. A server that is cut off from the leader answers reads
only, and no session lives on by them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NoNodeError

from moldau.cluster.zookeeper.sessions.operations import Operation
from tests.simulation.core.loop import VirtualLoop
from tests.simulation.core.process import EPOCH_S, Machine
from tests.simulation.zookeeper.tree import Change, Transaction, Tree, decide, results_in

if TYPE_CHECKING:
    from tests.simulation.zookeeper.client import Connection

_TICK_S = 0.5
_LEAST_LAG_S = 0.0005
_MORE_LAG_S = 0.003

Answer = Callable[[Any, Exception | None], None]


class Server:
    """One server: what it has applied, and who is connected to it."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.tree = Tree()
        self.applied = 0
        self.is_cut_off = False
        self.lag_s = 0.0
        self.connections: dict[Connection, None] = {}
        # By event and path: whom to tell, once.
        self.watches: dict[tuple[str, str], dict[Connection, None]] = {}
        # What is to be answered once so much has been applied.
        self.waiting: list[tuple[int, Callable[[], object]]] = []


class Session:
    def __init__(self, id: int, timeout_s: float, now_s: float) -> None:
        self.id = id
        self.timeout_s = timeout_s
        self.heard_s = now_s
        self.is_over = False
        # How often a client has connected to it.
        self.connections = 0


class Ensemble:
    """All servers, and the leader's log of transactions."""

    def __init__(self, loop: VirtualLoop, dice: random.Random, machines: Sequence[Machine]) -> None:
        self._loop = loop
        self._dice = dice
        self.servers = [Server(machine.name, machine) for machine in machines]
        # The leader's own tree is ahead of all servers'.
        self.tree = Tree()
        self.log: list[Transaction] = []
        self.sessions: dict[int, Session] = {}
        # On which machine each session was begun.
        self.owners: dict[int, Machine] = {}
        self._next_session = 0x1000
        # Told of each transaction when it is decided, with the session that asked for it.
        self.on_commit: list[Callable[[Transaction, int], None]] = []
        loop.later_in(loop.outside, _TICK_S, self._tick)

    # -- sessions

    def begin(self, timeout_s: float, machine: Machine) -> Session:
        self._next_session += 1
        session = Session(self._next_session, timeout_s, self._loop.now_s)
        self.sessions[session.id] = session
        self.owners[session.id] = machine
        return session

    def hear(self, session: Session) -> None:
        session.heard_s = self._loop.now_s

    def end(self, session: Session) -> None:
        """End a session, and take its ephemeral nodes away."""
        if session.is_over:
            return
        session.is_over = True
        del self.sessions[session.id]
        gone = [
            Change(path, None, 0, False)
            for path, node in self.tree.nodes.items()
            if node.owner == session.id
        ]
        self._commit(tuple(gone), session.id)
        for server in self.servers:
            for connection in [each for each in server.connections if each.session is session]:
                server.connections.pop(connection)
                connection.expired()

    def _tick(self) -> None:
        now_s = self._loop.now_s
        for session in list(self.sessions.values()):
            if now_s - session.heard_s > session.timeout_s:
                self.end(session)
        self._loop.later_in(self._loop.outside, _TICK_S, self._tick)

    # -- transactions

    def _commit(self, changes: tuple[Any, ...], session_id: int) -> int:
        at_ms = int((EPOCH_S + self._loop.now_s) * 1000)
        transaction = Transaction(len(self.log) + 1, at_ms, changes)
        self.log.append(transaction)
        self.tree.apply(transaction)
        for listener in self.on_commit:
            listener(transaction, session_id)
        for server in self.servers:
            self._replicate(server)
        return transaction.zxid

    def _replicate(self, server: Server) -> None:
        if not server.is_cut_off:
            lag_s = server.lag_s + _LEAST_LAG_S + self._dice.random() * _MORE_LAG_S
            self._loop.later_in(self._loop.outside, lag_s, self._catch_up, server)

    def _catch_up(self, server: Server) -> None:
        """Apply the next transaction; each has its own call."""
        if server.is_cut_off or server.applied >= len(self.log):
            return
        transaction = self.log[server.applied]
        server.applied += 1
        for event, path in server.tree.apply(transaction):
            for connection in server.watches.pop((event, path), ()):
                connection.tell(event, path)
        if server.waiting:
            due = [each for each in server.waiting if each[0] <= server.applied]
            server.waiting = [each for each in server.waiting if each[0] > server.applied]
            for _, answer in due:
                answer()

    def cut_off(self, server: Server) -> None:
        server.is_cut_off = True

    def rejoin(self, server: Server) -> None:
        server.is_cut_off = False
        for _ in range(len(self.log) - server.applied):
            self._replicate(server)

    # -- requests, as they arrive at a server

    def read(
        self, connection: Connection, kind: str, path: str, watch: bool, answer: Answer
    ) -> None:
        server = connection.server
        node = server.tree.nodes.get(path)
        if watch:
            self._watch(connection, kind, path, node is not None)
        if kind == "exists":
            answer(None if node is None else node.stat(), None)
        elif node is None:
            answer(None, NoNodeError())
        elif kind == "get":
            answer((node.data, node.stat()), None)
        else:
            children = list(node.children)
            self._dice.shuffle(children)
            answer(children, None)

    def _watch(self, connection: Connection, kind: str, path: str, is_there: bool) -> None:
        watches = connection.server.watches
        if kind == "children":
            events = ["child", "deleted"] if is_there else []
        elif is_there:
            events = ["changed", "deleted"]
        else:
            events = ["created"] if kind == "exists" else []
        for event in events:
            watches.setdefault((event, path), {})[connection] = None

    def write(
        self, connection: Connection, operations: Sequence[Operation], answer: Answer
    ) -> None:
        server, session = connection.server, connection.session
        if server.is_cut_off:
            return
        if session.is_over:
            connection.expired()
            return
        self.hear(session)
        changes, results = decide(self.tree, operations, session.id)
        if not changes and not any(isinstance(each, Exception) for each in results):
            answer(results, None)
            return
        # A refused transaction has its place in the order as well.
        zxid = self._commit(tuple(changes), session.id)
        results = results_in(self.tree, changes, results)
        server.waiting.append((zxid, lambda: answer(results, None)))

    def sync(self, connection: Connection, answer: Answer) -> None:
        server, session = connection.server, connection.session
        if server.is_cut_off:
            return
        if session.is_over:
            connection.expired()
            return
        self.hear(session)
        if server.applied >= len(self.log):
            answer("/", None)
        else:
            server.waiting.append((len(self.log), lambda: answer("/", None)))
