"""The simulated network: links between machines, with latency, cuts in one direction or both.

A link carries everything between two machines in one direction. While it is cut, what was sent
waits, as TCP sends it again and again, and arrives after the cut if anybody is still there to
receive it. Connections keep their own order; between connections there is none.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from typing import Any

from tests.simulation.core.loop import VirtualLoop
from tests.simulation.core.process import Machine, Process
from tests.simulation.network.transport import Transport

# What a link takes at least, and how much more at random; now and then it is much slower.
_LEAST_S = 0.0002
_MORE_S = 0.0008
_SLOW_S = 0.05
_SLOW_SHARE = 0.01
# After this long without an answer the system gives a connection up.
GIVE_UP_S = 20.0

Link = tuple[str, str]


class Server:
    """A listening address; those who connect wait until it serves."""

    def __init__(self, network: Network, process: Process, factory: Any, host: str, port: int):
        self._network = network
        self.process = process
        self.factory = factory
        self.address = (host, port)
        self.is_serving = False
        self.waiting: list[Callable[[], object]] = []
        self.sockets = _Sockets(self.address)

    async def start_serving(self) -> None:
        self.is_serving = True
        waiting, self.waiting = self.waiting, []
        for accept in waiting:
            accept()

    def close(self) -> None:
        self._network.servers.pop(self.address, None)


class _Sockets:
    """What a server says of its sockets: their address, and nothing to be done with them."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def __iter__(self) -> Any:
        return iter(())

    def __getitem__(self, place: int) -> _Sockets:
        return self

    def getsockname(self) -> tuple[str, int]:
        return self._address


class Network:
    """All links, servers and connections."""

    def __init__(self, loop: VirtualLoop, dice: random.Random) -> None:
        self._loop = loop
        self._dice = dice
        self.machines: dict[str, Machine] = {}
        self.servers: dict[tuple[str, int], Server] = {}
        self.connections: dict[Transport, None] = {}
        self._cut: dict[Link, list[Callable[[], object]]] = {}
        # Links that are slower than usual, by so much.
        self.delays: dict[Link, float] = {}
        self._ports = 40_000
        # Told about everything that is sent: source, destination, connection, bytes.
        self.on_sent: Callable[[Transport, bytes], None] | None = None
        loop.network = self

    def add(self, machine: Machine) -> Machine:
        self.machines[machine.address] = machine
        return machine

    # -- links

    def latency_s(self, link: Link) -> float:
        luck = self._dice.random()
        latency = _LEAST_S + luck * _MORE_S
        if self.delays:
            latency += self.delays.get(link, 0.0)
        if self._dice.random() < _SLOW_SHARE:
            latency += self._dice.random() * _SLOW_S
        return latency

    def is_cut(self, source: Machine, target: Machine) -> bool:
        return (source.name, target.name) in self._cut

    def carry(self, source: Machine, target: Machine, arrive: Callable[[], object]) -> None:
        """Call `arrive` when it gets there; after the cut, if the link is cut."""
        link = (source.name, target.name)
        held = self._cut.get(link) if self._cut else None
        if held is not None:
            held.append(arrive)
        else:
            self._loop.arrive_in(self.latency_s(link), arrive)

    def cut(self, source: Machine, target: Machine) -> None:
        """Let nothing through in this direction."""
        self._cut.setdefault((source.name, target.name), [])

    def mend(self, source: Machine, target: Machine) -> None:
        for arrive in self._cut.pop((source.name, target.name), ()):
            self.carry(source, target, arrive)

    def mend_all(self) -> None:
        for source, target in list(self._cut):
            by_name = {machine.name: machine for machine in self.machines.values()}
            self.mend(by_name[source], by_name[target])
        self.delays.clear()

    # -- connections

    def listen(self, process: Process, factory: Any, host: str, port: int) -> Server:
        if (host, port) in self.servers:
            raise OSError(errno.EADDRINUSE, "address already in use")
        server = Server(self, process, factory, host, port)
        self.servers[host, port] = server
        return server

    async def connect(
        self, process: Process, factory: Any, host: str, port: int
    ) -> tuple[Transport, Any]:
        loop = self._loop
        target = self.machines[host]
        source = process.machine
        outcome: asyncio.Future[Any] = loop.create_future()
        self._ports += 1
        own = (source.address, self._ports)

        def fail(problem: OSError) -> None:
            if not outcome.done():
                outcome.set_exception(problem)

        def refused() -> None:
            loop.soon_in(process, fail, ConnectionRefusedError(errno.ECONNREFUSED, "refused"))

        def arrived() -> None:
            if not target.is_on:
                return
            server = self.servers.get((host, port))
            if server is None or not server.process.is_alive:
                self.carry(target, source, refused)
                return
            far = Transport(self, server.process, target, source, (host, port), own)
            near = Transport(self, process, source, target, own, (host, port))
            near.other, far.other = far, near
            # The system has it from now on: it resets it when the program dies before it takes it.
            self.connections[far] = None

            def accept() -> None:
                if far.is_closed:
                    return
                self.connections[near] = None
                loop.soon_in(server.process, far.begin, server.factory())

            def accept_in_process() -> None:
                loop.soon_in(server.process, accept)

            def established() -> None:
                loop.soon_in(process, made, near)

            if server.is_serving:
                accept_in_process()
            else:
                server.waiting.append(accept_in_process)
            # The system answers, whether or not the program takes the connection yet.
            self.carry(target, source, established)

        def made(transport: Transport) -> None:
            if outcome.done() or not process.is_alive:
                transport.abort()
                return
            protocol = factory()
            self.connections[transport] = None
            transport.begin(protocol)
            outcome.set_result((transport, protocol))

        def timed_out() -> None:
            fail(TimeoutError(errno.ETIMEDOUT, "timed out"))

        loop.later_in(process, GIVE_UP_S, timed_out)
        self.carry(source, target, arrived)
        result: tuple[Transport, Any] = await outcome
        return result

    def connections_of(self, process: Process) -> list[Transport]:
        return [each for each in self.connections if each.process is process]

    def process_died(self, process: Process) -> None:
        """The system closes what a dead process had open, and tells the others."""
        for address, server in list(self.servers.items()):
            if server.process is process:
                del self.servers[address]
        for transport in self.connections_of(process):
            transport.vanish(tell=process.machine.is_on)

    def machine_booted(self, machine: Machine) -> None:
        """A machine is back, and knows nothing of its old connections: it resets them."""
        for transport in list(self.connections):
            if transport.far is machine and transport.other.is_closed and not transport.is_closed:
                self.carry(machine, transport.near, transport.reset)

    def break_connection(self, transport: Transport) -> None:
        """Reset a connection on both sides; what is under way is lost."""
        self.carry(transport.near, transport.near, transport.other.reset)
        self.carry(transport.near, transport.near, transport.reset)

    def forget(self, transport: Transport) -> None:
        self.connections.pop(transport, None)
