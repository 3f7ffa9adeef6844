"""Faults: how each kind of a scenario is done to a world, and undone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from moldau.cluster.state.internal_topics import TRANSACTION_STATE
from moldau.cluster.state.topics import NO_LEADER
from tests.simulation.checks.metadata import Metadata, Place
from tests.simulation.core.world import Node, World
from tests.simulation.scenario.damage import Damage
from tests.simulation.scenario.scenario import DAMAGING, Fault
from tests.simulation.zookeeper.client import Client
from tests.simulation.zookeeper.tree import Transaction


class Faults(Damage):
    """Does the faults of a scenario when their time comes.

    Nothing that is acknowledged may be lost as long as one broker at a time lacks what it had: so a
    fault that takes data waits until every replica is in sync again after the last one, and is left
    out where it is not. Nobody else dies before the cluster has noticed what was lost: until then
    whoever lost it counts as in sync, and would be the only one.
    """

    def __init__(self, world: World, metadata: Metadata) -> None:
        super().__init__(world)
        self._metadata = metadata
        # What happens to whoever writes a topic next.
        self._at_next_commit: list[Callable[[Node], object]] = []
        world.ensemble.on_commit.append(self._committed)
        # What happens when somebody comes into sync next.
        self._at_next_join: list[Callable[[int, int], object]] = []
        metadata.on_joined.append(self._joined)
        # What happens to whoever is elected next.
        self._at_next_election: list[Callable[[int], object]] = []
        metadata.on_elected.append(self._elected)
        # Who has lost something and may still count as in sync.
        self._unnoticed: set[Node] = set()
        self.counts: dict[str, int] = {}
        self._kinds: dict[str, Callable[[Node, Fault], str | None]] = {
            "kill": self._kill,
            "die while writing": self._die,
            "stop": self._stop,
            "freeze": self._freeze,
            "cut one way": self._cut_one_way,
            "cut": self._cut,
            "isolate": self._isolate,
            "cut from zookeeper": self._cut_from_zookeeper,
            "lose answers of zookeeper": self._lose_answers,
            "expire session": self._expire,
            "zookeeper server cut off": self._cut_off_server,
            "zookeeper server lags": self._lag,
            "break connections": self._break_connections,
            "slow links": self._slow_links,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "lose power": self._lose_power,
            "failing disk": self._failing_disk,
            "flip a bit": self._flip,
            "wipe": self._wipe,
            "wrong clock": self._wrong_clock,
            "blackout": self._blackout,
            "lose the answer to a commit": self._lose_commit,
            "die after a commit": self._die_after_commit,
            "part when somebody joins": self._part,
            "freeze a client": self._freeze_client,
            "stall a connection": self._stall,
            "kill a new leader": self._kill_elected,
            "elect a laggard": self._elect_laggard,
        }

    def schedule(self, faults: tuple[Fault, ...]) -> None:
        for fault in faults:
            self._later(fault.at_s - self._loop.now_s, partial(self._do, fault))

    def _do(self, fault: Fault) -> None:
        node = self._target(fault)
        if fault.kind in DAMAGING and not self._may_damage(node):
            return
        what = self._kinds[fault.kind](node, fault)
        if what is not None:
            if fault.kind in DAMAGING:
                self._unnoticed.add(node)
            self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
            self._world.tell("FAULT", f"{fault.kind}: {what}")

    def _may_damage(self, node: Node) -> bool:
        """Return whether others have what is to be lost, and none of them is about to die."""
        return (
            node.is_serving
            and all(each.is_serving for each in self._world.nodes.values())
            and not any(each.is_doomed for each in self._world.nodes.values())
            and self._metadata.is_whole()
        )

    def _may_die(self, node: Node) -> bool:
        self._notice()
        return not self._unnoticed - {node}

    def _notice(self) -> None:
        if self._unnoticed:
            is_whole = self._metadata.is_whole()
            in_sync = self._metadata.in_sync()
            self._unnoticed = {
                node
                for node in self._unnoticed
                if node.id in in_sync and not (is_whole and node.is_serving)
            }

    def _target(self, fault: Fault) -> Node:
        nodes = self._world.nodes
        leaders = [
            partition.leader
            for topic in self._metadata.topics.values()
            if not topic.is_internal
            for partition in topic.partitions
            if partition.leader != NO_LEADER
        ]
        if fault.target == "leader" and leaders:
            return nodes[leaders[int(fault.luck * len(leaders))]]
        if fault.target == "follower" and leaders:
            others = [id for id in nodes if id != leaders[0]]
            return nodes[others[int(fault.luck * len(others))]]
        if fault.target == "coordinator":
            state = self._metadata.topics.get(TRANSACTION_STATE.name)
            of = [each for each in self._metadata.topics.values() if each.is_internal]
            of = of if state is None else [state]
            leading = [each.leader for topic in of for each in topic.partitions]
            leading = [leader for leader in leading if leader != NO_LEADER]
            if leading:
                return nodes[leading[int(fault.luck * len(leading))]]
        if fault.target == "controller":
            for node in nodes.values():
                if node.broker is not None and node.broker.state.controller_id == node.id:
                    return node
        return list(nodes.values())[int(fault.luck * len(nodes))]

    # -- ZooKeeper

    def _lose_answers(self, node: Node, fault: Fault) -> str | None:
        """Break the connection, once or a few times, with requests under way on it."""
        if node.process is None:
            return None
        process = node.process
        clients = self._clients(node)

        def drop() -> None:
            for client in clients:
                client.drop(is_reset=fault.luck > 0.7)

        for number in range(1 + int(fault.luck * 3)):
            delay_s = number * self._dice.random()
            self._later(delay_s, lambda: self._loop.soon_in(process, drop))
        return node.name

    def _committed(self, transaction: Transaction, session_id: int) -> None:
        self._notice()
        if self._at_next_commit and any(
            change.path.startswith("/moldau/topics/") for change in transaction.changes
        ):
            waiting, self._at_next_commit = self._at_next_commit, []
            for node in self._world.nodes.values():
                for client in self._clients(node):
                    if client.client_id is not None and client.client_id[0] == session_id:
                        for happen in waiting:
                            happen(node)

    def _clients(self, node: Node) -> list[Client]:
        return self._world.clients.get(node.process, []) if node.process is not None else []

    def _lose_commit(self, node: Node, fault: Fault) -> str:
        """It takes place, and whoever asked for it does not hear that; perhaps for a while."""

        def lose(writer: Node) -> None:
            self._world.tell("FAULT", f"the answer to a commit of {writer.name} is lost")
            if fault.luck < 0.6:
                self._cut_from_zookeeper(writer, fault)
            process = writer.process
            for client in self._clients(writer):
                if process is not None:
                    self._loop.soon_in(process, client.drop)

        self._at_next_commit.append(lose)
        return "of whoever commits next"

    def _die_after_commit(self, node: Node, fault: Fault) -> str:
        """Whoever commits next dies soon after, or is cut off from the others."""

        def die(writer: Node) -> None:
            work = self._isolate if fault.luck < 0.3 else self._kill
            self._later(fault.luck**2, partial(work, writer, fault))

        self._at_next_commit.append(die)
        return "whoever commits next"

    def _joined(self, name: str, place: Place, broker: int) -> None:
        state = self._metadata.partition(name.rpartition("-")[0], place)
        waiting, self._at_next_join = self._at_next_join, []
        for happen in waiting if state is not None and state.leader in self._world.nodes else ():
            assert state is not None
            self._later(0.0, partial(happen, state.leader, broker))

    def _part(self, node: Node, fault: Fault) -> str:
        """The leader does not hear that somebody is in sync by now, and they hear no more of each
        other; soon the leader dies, and perhaps the third one."""

        def part(leader: int, joined: int) -> None:
            nodes = self._world.nodes
            one, other = nodes[leader], nodes[joined]
            self._world.tell("FAULT", f"{one.name} and {other.name} part, which has just joined")
            for client in self._clients(one):
                if one.process is not None:
                    self._loop.soon_in(one.process, client.drop)
            links = [(one.machine, other.machine), (other.machine, one.machine)]
            for server in self._world.ensemble.servers:
                links += [(one.machine, server.machine), (server.machine, one.machine)]
            self._cut_links(links, 3.0)
            dies_s = 1.0 + fault.luck
            self._later(dies_s, partial(self._kill, one, fault))
            for third in nodes.values():
                if third not in (one, other) and fault.luck < 0.7:
                    self._later(dies_s, partial(self._kill, third, fault))

        self._at_next_join.append(part)
        return "whoever joins next, and its leader"

    def _elected(self, name: str, leader: int) -> None:
        waiting, self._at_next_election = self._at_next_election, []
        for happen in waiting:
            self._later(0.0, partial(happen, leader))

    def _kill_elected(self, node: Node, fault: Fault) -> str:
        """Whoever is elected next has a short time to write something, and dies or is cut off."""

        def kill(leader: int) -> None:
            elected = self._world.nodes[leader]
            self._world.tell("FAULT", f"{elected.name} is elected, and will not lead for long")
            work = self._isolate if fault.luck < 0.4 else self._kill
            self._later(fault.luck, partial(work, elected, fault))

        self._at_next_election.append(kill)
        return "whoever is elected next"

    def _elect_laggard(self, node: Node, fault: Fault) -> str:
        """Whoever comes into sync next gets what the leader has with a delay, and is perhaps
        elected, by an administrator, without the last of it; then it dies soon. Of the third broker
        nobody hears anything meanwhile, or it comes back just then.
        """

        def lag(leader: int, joined: int) -> None:
            nodes, delays = self._world.nodes, self._world.network.delays
            one, other = nodes[leader], nodes[joined]
            link = (one.name, other.name)
            delays[link] = 0.05 + 0.4 * fault.luck
            self._later(2.5, lambda: delays.pop(link, None))
            for third in nodes.values():
                if third not in (one, other):
                    links = [(third.machine, one.machine), (third.machine, other.machine)]
                    self._cut_links(links, 1.0 + 2.0 * fault.luck)
            dies_s = 0.02 + 0.4 * fault.luck**2

            def kill(elected: int) -> None:
                if elected == joined:
                    self._world.tell("FAULT", f"{other.name} is elected, and lags")
                    self._later(dies_s, partial(self._kill, other, fault))

            self._at_next_election.append(kill)

        self._at_next_join.append(lag)
        return "whoever joins next"

    def _expire(self, node: Node, fault: Fault) -> str | None:
        """The ensemble gives a session up, though its client is well."""
        for client in self._clients(node):
            if client._session is not None:
                self._world.ensemble.end(client._session)
                return node.name
        return None

    def _cut_off_server(self, node: Node, fault: Fault) -> str:
        ensemble = self._world.ensemble
        server = ensemble.servers[int(fault.luck * len(ensemble.servers))]
        ensemble.cut_off(server)
        self._later(fault.lasts_s, lambda: ensemble.rejoin(server))
        return f"{server.name} for {fault.lasts_s:.1f} s"

    def _lag(self, node: Node, fault: Fault) -> str:
        ensemble = self._world.ensemble
        server = ensemble.servers[int(fault.luck * len(ensemble.servers))]
        server.lag_s = 0.2 + fault.luck * 2

        def restore() -> None:
            server.lag_s = 0.0

        self._later(fault.lasts_s, restore)
        return f"{server.name} by {server.lag_s:.2f} s for {fault.lasts_s:.1f} s"

    # -- the end

    def heal(self) -> None:
        """Undo everything that is still wrong."""
        world = self._world
        world.tell("FAULT", "no more: everything is repaired")
        self._at_next_commit.clear()
        self._at_next_join.clear()
        self._at_next_election.clear()
        world.network.mend_all()
        for server in world.ensemble.servers:
            server.lag_s = 0.0
            world.ensemble.rejoin(server)
        for node in world.nodes.values():
            node.disk.is_full = node.disk.fails = False
            node.disk.fsync_s = 0.0
            node.machine.skew_s = 0.0
            if node.process is not None:
                node.process.frozen_until = 0.0
                self._loop.wake(node.process)
                node.process.operations_left = -1
                if not node.process.is_alive:
                    node.gone()
            node.boot()
            if node.broker is not None and any(
                log.offline is not None for log in node.broker.logs.logs.values()
            ):
                # As the docs say: make room, and start it again.
                node.end()
            if node.process is None:
                node.start()
