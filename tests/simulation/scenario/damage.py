"""Damage: what can be done to processes, links, disks and clocks, and undone after a while."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tests.simulation.core.process import Machine
from tests.simulation.core.world import Node, World
from tests.simulation.scenario.scenario import Fault


class Damage:
    """Each kind returns what was done to whom, for the story; None if it could not be done."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop
        self._dice: random.Random = world.dice("faults")

    def _later(self, delay_s: float, work: Callable[[], object]) -> None:
        self._loop.later_in(self._loop.outside, delay_s, work)

    # -- processes

    def _may_die(self, node: Node) -> bool:
        """Return whether everybody else has what they are believed to have."""
        return True

    def _start_later(self, node: Node, fault: Fault) -> None:
        self._later(fault.lasts_s, node.start)

    def _kill(self, node: Node, fault: Fault) -> str | None:
        if not node.is_alive or not self._may_die(node):
            return None
        node.end()
        self._start_later(node, fault)
        return f"{node.name} for {fault.lasts_s:.1f} s"

    def _die(self, node: Node, fault: Fault) -> str | None:
        """Die in the midst of one of the next operations on the disk."""
        if not node.is_alive or node.process is None or not self._may_die(node):
            return None
        process = node.process
        process.operations_left = int(fault.luck * 12)

        def look() -> None:
            if node.process is process:
                if not process.is_alive:
                    node.gone()
                    self._world.tell(node.name, "died while writing")
                    self._start_later(node, fault)
                elif process.operations_left >= 0:
                    self._later(0.05, look)

        look()
        return f"{node.name} after {process.operations_left} operations"

    def _stop(self, node: Node, fault: Fault) -> str | None:
        if not node.is_serving or node.process is None or not self._may_die(node):
            return None
        process = node.process
        self._world.spawn(process, node.stop())

        def start() -> None:
            if node.process is process:
                # It hangs on its way down: systemd would kill it by now.
                node.end()
            node.start()

        self._later(fault.lasts_s + 15.0, start)
        return f"{node.name} for {fault.lasts_s:.1f} s"

    def _freeze(self, node: Node, fault: Fault) -> str | None:
        if node.process is None or not node.is_alive:
            return None
        node.process.frozen_until = self._loop.now_s + fault.lasts_s
        return f"{node.name} for {fault.lasts_s:.1f} s"

    def _freeze_client(self, node: Node, fault: Fault) -> str | None:
        """Long enough for the others to go on without it."""
        others = self._world.others
        if not others:
            return None
        process = others[int(fault.luck * len(others))]
        process.frozen_until = self._loop.now_s + 4.0 + fault.lasts_s
        return f"{process.name} for {4.0 + fault.lasts_s:.1f} s"

    # -- the network

    def _cut_links(self, links: list[tuple[Machine, Machine]], lasts_s: float) -> None:
        network = self._world.network
        for source, target in links:
            network.cut(source, target)

        def mend() -> None:
            for source, target in links:
                network.mend(source, target)

        self._later(lasts_s, mend)

    def _other(self, node: Node, fault: Fault) -> Node:
        others = [each for each in self._world.nodes.values() if each is not node]
        return others[int(fault.luck * 97) % len(others)]

    def _cut_one_way(self, node: Node, fault: Fault) -> str:
        other = self._other(node, fault)
        source, target = (node, other) if fault.luck < 0.5 else (other, node)
        self._cut_links([(source.machine, target.machine)], fault.lasts_s)
        return f"nothing gets from {source.name} to {target.name} for {fault.lasts_s:.1f} s"

    def _cut(self, node: Node, fault: Fault) -> str:
        other = self._other(node, fault)
        self._cut_links(
            [(node.machine, other.machine), (other.machine, node.machine)], fault.lasts_s
        )
        return f"{node.name} and {other.name} for {fault.lasts_s:.1f} s"

    def _isolate(self, node: Node, fault: Fault) -> str:
        """From all other brokers; from ZooKeeper or clients too, or not."""
        machines = [each.machine for each in self._world.nodes.values() if each is not node]
        if fault.luck > 0.3:
            machines += [server.machine for server in self._world.ensemble.servers]
        if fault.luck > 0.7:
            machines += [process.machine for process in self._world.others]
        links = [(node.machine, each) for each in machines]
        links += [(each, node.machine) for each in machines]
        self._cut_links(links, fault.lasts_s)
        return f"{node.name} from {len(machines)} machines for {fault.lasts_s:.1f} s"

    def _cut_from_zookeeper(self, node: Node, fault: Fault) -> str:
        links = []
        for server in self._world.ensemble.servers:
            if fault.luck < 0.66:
                links.append((node.machine, server.machine))
            if fault.luck > 0.33:
                links.append((server.machine, node.machine))
        self._cut_links(links, fault.lasts_s)
        return f"{node.name} for {fault.lasts_s:.1f} s"

    def _break_connections(self, node: Node, fault: Fault) -> str | None:
        network = self._world.network
        mine = [each for each in network.connections if node.machine in (each.near, each.far)]
        if not mine:
            return None
        count = max(1, int(len(mine) * fault.luck))
        for transport in self._dice.sample(mine, count):
            network.break_connection(transport)
        return f"{count} of {node.name}"

    def _stall(self, node: Node, fault: Fault) -> str | None:
        """What is sent over one connection is on its way for so long that whoever sent it has given
        up by then, and perhaps sent it again over another.
        """
        mine = [each for each in self._world.network.connections if each.far is node.machine]
        if not mine:
            return None
        transport = mine[int(fault.luck * len(mine))]
        stalled_s = 5.0 + fault.lasts_s
        transport.stall(stalled_s)
        return f"{transport.near.name} to {node.name} for {stalled_s:.1f} s"

    def _slow_links(self, node: Node, fault: Fault) -> str:
        delays = self._world.network.delays
        other = self._other(node, fault)
        link = (node.name, other.name)
        delays[link] = fault.luck * 2

        def restore() -> None:
            delays.pop(link, None)

        self._later(fault.lasts_s, restore)
        return f"from {node.name} to {other.name} by {fault.luck * 2:.2f} s"

    # -- disks and clocks

    def _slow_disk(self, node: Node, fault: Fault) -> str:
        node.disk.fsync_s = fault.luck * 3

        def restore() -> None:
            node.disk.fsync_s = 0.0

        self._later(fault.lasts_s, restore)
        return f"{node.name} by {node.disk.fsync_s:.2f} s for {fault.lasts_s:.1f} s"

    def _full_disk(self, node: Node, fault: Fault) -> str:
        node.disk.is_full = True

        def restore() -> None:
            node.disk.is_full = False

        self._later(fault.lasts_s, restore)
        return f"{node.name} for {fault.lasts_s:.1f} s"

    def _failing_disk(self, node: Node, fault: Fault) -> str:
        node.disk.fails = True

        def restore() -> None:
            node.disk.fails = False

        self._later(fault.lasts_s, restore)
        return f"{node.name} for {fault.lasts_s:.1f} s"

    def _lose_power(self, node: Node, fault: Fault) -> str:
        node.lose_power()

        def boot() -> None:
            node.boot()
            node.start()

        self._later(fault.lasts_s, boot)
        return f"{node.name} for {fault.lasts_s:.1f} s"

    def _blackout(self, node: Node, fault: Fault) -> str:
        """All lose power at once, and come back one after the other."""
        nodes = list(self._world.nodes.values())
        self._dice.shuffle(nodes)
        for each in nodes:
            each.lose_power()

        def boot(each: Node) -> None:
            each.boot()
            each.start()

        for number, each in enumerate(nodes):
            self._later(fault.lasts_s * (0.2 + number * fault.luck), partial(boot, each))
        return f"all, for {fault.lasts_s:.1f} s"

    def _flip(self, node: Node, fault: Fault) -> str | None:
        """While it is down, so that its next start has to notice."""
        suffix = ".log" if fault.luck < 0.6 else "index" if fault.luck < 0.8 else "checkpoint"
        node.end()
        self._start_later(node, fault)
        return node.disk.flip_bit(suffix) or f"{node.name} has nothing to flip, and is killed"

    def _wipe(self, node: Node, fault: Fault) -> str:
        node.end()
        node.disk.wipe()
        self._start_later(node, fault)
        return f"{node.name} comes back with an empty disk in {fault.lasts_s:.1f} s"

    def _wrong_clock(self, node: Node, fault: Fault) -> str:
        node.machine.skew_s = (fault.luck - 0.7) * 7200
        return f"{node.name} is wrong by {node.machine.skew_s:.0f} s"
