"""The simulated ZooKeeper answers as the real one does, and tells of the same watched changes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from moldau.testing import Ensemble
from moldau.testing.waiting import until
from tests.simulation.zookeeper.histories import CLIENTS, End, Multi, Read, Step, Words, history
from tests.simulation.zookeeper.virtual import Virtual, add

_HISTORIES = 12


class Real:
    """Clients of a real ensemble."""

    def __init__(self, hosts: str, chroot: str) -> None:
        self._hosts = hosts
        self._chroot = chroot
        self.fired: set[int] = set()
        self._clients = [self._connect() for _ in range(CLIENTS)]
        self._clients[0].ensure_path(chroot)
        self._words = Words(chroot)

    def _connect(self) -> KazooClient:
        client = KazooClient(self._hosts, timeout=20)
        assert client.start_async().wait(20)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.stop()
            client.close()

    def do(self, step: Step) -> Any:
        client = self._clients[step.client]
        answer: Any
        match step:
            case End():
                client.stop()
                client.close()
                self._clients[step.client] = self._connect()
                answer = None
            case Multi(_, operations):
                request = client.transaction()
                for operation in operations:
                    add(request, operation, self._chroot)
                answer = request.commit()
            case Read(_, kind, path, number):
                watch: Callable[[Any], None] | None = None
                if number >= 0:
                    watch = lambda event: self._fire(event, number)
                call = {
                    "get": client.get,
                    "exists": client.exists,
                    "children": client.get_children,
                }[kind]
                try:
                    answer = call(self._chroot + path, watch=watch)
                except KazooException as problem:
                    answer = problem
                if kind == "children" and isinstance(answer, list):
                    answer = sorted(answer)
        # Both clients see what the other one did, however many servers there are.
        for each in self._clients:
            each.sync(self._chroot)
        return self._words.answer(answer, [each.client_id[0] for each in self._clients])

    def _fire(self, event: Any, number: int) -> None:
        if event.type != "NONE":
            self.fired.add(number)


def test_random_histories_have_the_same_answers_and_watches(ensemble: Ensemble) -> None:
    refused = fired = 0
    for seed in range(_HISTORIES):
        steps = history(seed)
        real, virtual = Real(ensemble.hosts, f"/{uuid.uuid4().hex}"), Virtual(seed)
        try:
            for number, step in enumerate(steps):
                expected = virtual.do(step)
                assert real.do(step) == expected, f"seed {seed}, step {number}: {step}"
                refused += isinstance(expected, list) and "RolledBackError" in expected
                until(
                    lambda real=real, virtual=virtual: real.fired == virtual.fired,  # type: ignore[misc]
                    f"seed {seed}, step {number}: {step}: the real one told of "
                    f"{real.fired - virtual.fired}, the simulated one of "
                    f"{virtual.fired - real.fired}",
                )
            fired += len(virtual.fired)
        finally:
            real.close()
    # It would prove little if nothing had been refused or watched.
    assert refused > 10
    assert fired > 50
