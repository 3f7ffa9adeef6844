"""Clients of a simulated ZooKeeper that do one step of a history after the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from moldau.cluster.zookeeper.sessions.operations import Check, Create, Delete, Operation, SetData
from tests.simulation.core.loop import VirtualLoop
from tests.simulation.core.process import Machine, Process
from tests.simulation.network.network import Network
from tests.simulation.zookeeper.client import Client
from tests.simulation.zookeeper.ensemble import Ensemble
from tests.simulation.zookeeper.histories import (
    CLIENTS,
    NO_WATCH,
    Break,
    End,
    Multi,
    Read,
    Step,
    Words,
)


def add(request: Any, operation: Operation, chroot: str) -> None:
    match operation:
        case Create(path, data, ephemeral, sequence):
            request.create(chroot + path, data, ephemeral=ephemeral, sequence=sequence)
        case SetData(path, data, version):
            request.set_data(chroot + path, data, version)
        case Delete(path, version):
            request.delete(chroot + path, version)
        case Check(path, version):
            request.check(chroot + path, version)


class Virtual:
    """Clients of a simulated one."""

    def __init__(self, seed: int) -> None:
        self.loop = VirtualLoop(random.Random(seed))
        self._network = Network(self.loop, random.Random(seed))
        self._dice = random.Random(seed)
        self._servers = [
            self._network.add(Machine(f"zookeeper-{number}", f"10.0.1.{number}"))
            for number in range(3)
        ]
        self._ensemble = Ensemble(self.loop, random.Random(seed), self._servers)
        self.fired: set[int] = set()
        self._count = 0
        self._clients = [self._connect() for _ in range(CLIENTS)]
        self._words = Words("")

    def _connect(self) -> Client:
        self._count += 1
        machine = self._network.add(Machine(f"client-{self._count}", f"10.0.2.{self._count}"))
        process = Process(machine.name, machine)
        client = Client(
            process, self._network, self._ensemble, self._dice, 20.0, lambda timeout_s: None
        )
        client.start_async()
        self._until(lambda: client.connection is not None)
        return client

    def _until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(100_000):
            if is_done():
                return
            self.loop.turn()
        raise AssertionError("nothing came of it")

    def _value(self, result: Any) -> Any:
        self._until(lambda: result.is_ready)
        return result.exception if result.exception is not None else result.value

    def do(self, step: Step) -> Any:
        client = self._clients[step.client]
        answer: Any
        match step:
            case End():
                client.stop()
                self._clients[step.client] = self._connect()
                answer = None
            case Break():
                return self._break(client, step)
            case Multi(_, operations):
                request = client.transaction()
                for operation in operations:
                    add(request, operation, "")
                answer = self._value(request.commit_async())
            case Read(_, kind, path, number):
                watch: Callable[[Any], None] | None = None
                if number != NO_WATCH:
                    watch = lambda event: self.fired.add(number)
                call = {
                    "get": client.get_async,
                    "exists": client.exists_async,
                    "children": client.get_children_async,
                }[kind]
                answer = self._value(call(path, watch=watch))
                if kind == "children" and isinstance(answer, list):
                    answer = sorted(answer)
        connected = self._sync()
        ids = [each.client_id[0] for each in connected if each.client_id is not None]
        return self._words.answer(answer, ids)

    def _sync(self) -> list[Client]:
        """Let all who are connected see what the others did; return them."""
        connected = [each for each in self._clients if each.connection is not None]
        for each in connected:
            self._value(each.sync_async("/"))
        return connected

    def _break(self, client: Client, step: Break) -> list[Any]:
        """Return what was answered meanwhile, and the states that the client went through."""
        machine, states = client.process.machine, list[str]()
        client.add_listener(states.append)
        session = client._session
        assert session is not None
        for server in self._servers:
            self._network.cut(machine, server)
            self._network.cut(server, machine)
        client.drop(is_reset=True)
        answers = [self.do(each) for each in step.meanwhile]
        while step.expires and not session.is_over:
            # Only kazoo's own client says by itself that its session is alive.
            self._sync()
        self._network.mend_all()
        self._until(lambda: client.connection is not None)
        self._sync()
        return [*answers, *states]
