"""A world: machines, disks, a network, ZooKeeper and brokers, all from one seed."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import logging
import pkgutil
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import moldau.broker
import moldau.cluster
import moldau.log
import moldau.peer
import moldau.wire
from moldau.broker.server import Broker
from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.store import StoreError
from moldau.log.errors import LogError
from moldau.peer.errors import PeerError
from moldau.wire.apis import VERSIONS
from moldau.wire.messages import load
from tests.simulation.core.loop import VirtualLoop, end_task
from tests.simulation.core.process import Machine, Process
from tests.simulation.core.seams import installed
from tests.simulation.disk.disk import Disk
from tests.simulation.disk.system import System
from tests.simulation.network.network import Network
from tests.simulation.zookeeper.client import Client
from tests.simulation.zookeeper.ensemble import Ensemble

_RESTART_S = 1.0
# What a disk, ZooKeeper or another broker may do to a broker; anything else is a bug.
_EXPECTED = (OSError, LogError, StoreError, PeerError)
PORT = 9092

# Timings that suit minutes of virtual time, and cost few steps while nothing happens.
SETTINGS = {
    "socket.sendfile.enable": "false",
    "zookeeper.connect": "zookeeper:2181/moldau",
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.wait.max.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "log.flush.offset.checkpoint.interval.ms": "20000",
    "log.retention.check.interval.ms": "30000",
    "log.cleaner.enable": "false",
    "leader.imbalance.check.interval.seconds": "30",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "auto.create.topics.enable": "false",
    "log.level": "INFO",
}


@functools.cache
def load_everything() -> None:
    """Import what the product imports when it is first asked for: later it would be too late."""
    for package in (moldau.broker, moldau.cluster, moldau.log, moldau.peer, moldau.wire):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(found.name)
    for api, versions in VERSIONS.items():
        for version in {versions.first, versions.last}:
            load(api, version)


class Node:
    """A machine with a disk that runs a broker, again and again."""

    def __init__(self, world: World, id: int, settings: Mapping[str, str]) -> None:
        self._world = world
        self.id = id
        self.name = f"broker-{id}"
        self.machine = world.network.add(Machine(self.name, f"10.0.0.{id}"))
        self.folder = f"/{self.name}/data"
        self.disk = Disk(f"/{self.name}", world.dice(f"disk-{id}"), lambda: world.loop.now_s)
        world.system.disks[f"/{self.name}"] = self.disk
        self.settings = settings
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.is_serving = False
        self.wanted = False
        self.lives = 0

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def is_doomed(self) -> bool:
        """Whether it dies within a few operations on its disk."""
        return self.process is not None and self.process.operations_left >= 0

    def start(self) -> None:
        """Run the broker, and start it again when it cannot start."""
        self.wanted = True
        if self.is_alive or not self.machine.is_on:
            return
        # One that has died while it wrote may not have been cleared up after yet.
        self.gone()
        world = self._world
        self.lives += 1
        self.process = process = Process(f"{self.name}#{self.lives}", self.machine)
        process.after_step = world.after_step
        world.tell(self.name, "starts")
        world.spawn(process, self._run(process))

    async def _run(self, process: Process) -> None:
        world = self._world
        settings = BrokerSettings.parse(
            {
                **SETTINGS,
                **self.settings,
                "node.id": str(self.id),
                "log.dirs": self.folder,
                "listeners": f"{self.machine.address}:{PORT}",
            }
        )
        try:
            broker = self.broker = Broker(settings)
            process.belongings.append(broker)
            await broker.start()
        except Exception as problem:
            world.tell(self.name, f"could not start: {problem}")
            world.loop.later_in(world.loop.outside, _RESTART_S, self._again, process)
            return
        self.is_serving = True
        world.tell(self.name, "serves")

    def _again(self, process: Process) -> None:
        if process is self.process:
            self.end()
            if self.wanted:
                self.start()

    def end(self) -> None:
        """End the process at once, as `kill -9` does."""
        process = self.process
        if process is None:
            return
        self._world.loop.kill(process)
        self.gone()

    def gone(self) -> None:
        """Clear up after a process that has died."""
        process = self.process
        if process is None:
            return
        self.process, self.broker, self.is_serving = None, None, False
        world = self._world
        world.graveyard.append(process)
        world.network.process_died(process)
        self.disk.process_died()
        for client in world.clients.pop(process, ()):
            connection = client.connection
            if connection is not None:
                connection.is_open = False
                if self.machine.is_on:
                    world.network.carry(
                        self.machine, connection.server.machine, connection.cut_short
                    )

    async def stop(self) -> None:
        """Stop it cleanly; called as a step of its own process."""
        broker, process = self.broker, self.process
        if broker is None or process is None or not self.is_serving:
            return
        self.wanted = False
        await broker.stop()
        self._world.loop.later_in(self._world.loop.outside, 0.0, self._stopped, process)

    def _stopped(self, process: Process) -> None:
        if process is self.process:
            self._world.tell(self.name, "has stopped")
            self.end()

    def lose_power(self) -> None:
        self.machine.is_on = False
        if self.is_alive:
            self.end()
        self._world.tell(self.name, f"loses power, and {self.disk.lose_power()}")

    def boot(self) -> None:
        if not self.machine.is_on:
            self.machine.is_on = True
            self.machine.boots += 1
            self._world.network.machine_booted(self.machine)


class _Lines(logging.Handler):
    """The product's own log lines, as part of the story."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        if not world.loop.is_over and world.loop.process.is_alive:
            text = f"[{record.levelname}] {record.getMessage()}"
            if record.exc_info and record.exc_info[1] is not None:
                text += f" ({record.exc_info[1]!r})"
                is_expected = isinstance(record.exc_info[1], _EXPECTED)
                if record.levelno >= logging.ERROR and not is_expected:
                    stack = logging.Formatter().formatException(record.exc_info)
                    world.tracebacks.append(f"{world.loop.process}: {stack}")
            world.tell(world.loop.process.name, text)


class World:
    """Everything of one run. Use it within `with world.installed()`."""

    def __init__(
        self, seed: str, settings: Mapping[str, str] = SETTINGS, brokers: int = 3, servers: int = 3
    ) -> None:
        load_everything()
        self.seed = seed
        self.loop = VirtualLoop(self.dice("schedule"))
        self.network = Network(self.loop, self.dice("network"))
        self.system = System(self.loop, self.dice("uuids").randbytes)
        machines = [
            self.network.add(Machine(f"zookeeper-{number}", f"10.0.1.{number}"))
            for number in range(1, servers + 1)
        ]
        self.ensemble = Ensemble(self.loop, self.dice("zookeeper"), machines)
        # The processes of clients.
        self.others: list[Process] = []
        self.clients: dict[Process, list[Client]] = {}
        self.graveyard: list[Process] = []
        self.story: list[tuple[float, str, str]] = []
        self.tracebacks: list[str] = []
        self.failure: Exception | None = None
        # Called after each step of a broker, with its process.
        self.after_step: Callable[[Process], None] | None = None
        self.nodes = {id: Node(self, id, settings) for id in range(1, brokers + 1)}
        disks = {node.machine: node.disk for node in self.nodes.values()}
        quick = self.loop.executor_s

        def executor_s(process: Process) -> float:
            disk = disks.get(process.machine)
            return quick(process) + (disk.fsync_s if disk is not None else 0.0)

        self.loop.executor_s = executor_s
        self._client_dice = self.dice("clients of zookeeper")

    def dice(self, name: str) -> random.Random:
        """A source of randomness of its own for each purpose: one does not disturb another."""
        return random.Random(f"{self.seed}/{name}")

    def tell(self, who: str, what: str) -> None:
        """Add a line to the story."""
        self.story.append((self.loop.now_s, who, what))

    @contextmanager
    def installed(self) -> Iterator[None]:
        with installed(self.loop, self.system, self.seed, self._new_client):
            root = logging.getLogger("moldau")
            root.handlers[:] = [_Lines(self)]
            root.setLevel(logging.INFO)
            root.propagate = False
            # Only what a run leaves behind is looked at in the end, and nothing before: destructors
            # run when the last reference goes, which is the same every time.
            gc.freeze()
            gc.disable()
            try:
                yield
            finally:
                self._tear_down()
                gc.collect()
                gc.enable()
                gc.unfreeze()

    def _new_client(
        self, hosts: str, timeout_s: float, on_granted: Any, *more: Any
    ) -> tuple[Any, Any]:
        process = self.loop.process
        client = Client(
            process, self.network, self.ensemble, self._client_dice, timeout_s, on_granted
        )
        self.clients.setdefault(process, []).append(client)
        return client, SimpleNamespace(patience_s=0.0, has_session=False, refusal=None)

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> None:
        """Begin a coroutine as a task of a process."""
        self.loop.soon_in(process, lambda: self.loop.create_task(work))

    def fail(self, problem: Exception) -> None:
        """Stop here: something is wrong."""
        if self.failure is None:
            self.failure = problem
            self.tell("simulator", f"VIOLATION: {problem}")
        self.loop.stop()

    def run(self, until_s: float, is_done: Callable[[], bool] | None = None) -> None:
        """Let time pass until then, or until it is done."""
        loop = self.loop

        def stop() -> None:
            loop.stop()

        def look() -> None:
            if is_done is not None and is_done():
                loop.stop()
            else:
                loop.later_in(loop.outside, 0.1, look)

        timer = loop.later_in(loop.outside, until_s - loop.now_s, stop)
        if is_done is not None:
            look()
        asyncio.set_event_loop(None)
        loop.run_forever()
        timer.cancel()

    def _tear_down(self) -> None:
        """End every coroutine while the simulation still stands below it."""
        loop = self.loop
        loop.is_over = True
        found = [*self.graveyard, *(node.process for node in self.nodes.values())]
        everybody = [each for each in found if each is not None]
        everybody += [loop.outside, *self.others]
        kept: list[Any] = []
        # What a coroutine does at its end may begin others.
        while belongings := [each for process in everybody for each in process.belongings]:
            kept += belongings
            for process in everybody:
                process.belongings.clear()
            for each in belongings:
                if isinstance(each, asyncio.Task) and not each.done():
                    end_task(each)
        loop.close()
        for node in self.nodes.values():
            node.process = node.broker = None
        self.failure = None
        self.graveyard.clear()
        for process in everybody:
            process.ready.clear()
            process.overdue.clear()
        for transport in self.network.connections:
            transport.discard()
        self.network.connections.clear()
        self.network.servers.clear()
        for server in self.ensemble.servers:
            server.connections.clear()
            server.watches.clear()
            server.waiting.clear()
        self.clients.clear()
        loop.discard()
