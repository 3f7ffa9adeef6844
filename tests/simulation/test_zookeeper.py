"""The simulated ZooKeeper answers as the real one does, and tells of the same watched changes."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from moldau.testing import Ensemble
from moldau.testing.waiting import until
from tests.cluster.zookeeper.proxy import Proxy
from tests.simulation.zookeeper.histories import (
    CLIENTS,
    NO_WATCH,
    Break,
    End,
    Multi,
    Read,
    Step,
    Words,
    history,
)
from tests.simulation.zookeeper.virtual import Virtual, add

_HISTORIES = 12
_HISTORIES_WITH_EXPIRIES = 2
_EXPIRIES = 2
# Long enough that no session expires because the machine is busy.
_SESSION_S = 20.0
_SHORT_SESSION_S = 8.0
_AGAIN_S = 0.1


class Links:
    """The connections of clients to ZooKeeper, which can be cut, on a thread of their own."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._proxies: list[Proxy] = []

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def new(self) -> Proxy:
        proxy = Proxy(self._target)
        self._proxies.append(proxy)
        self._run(proxy.__aenter__())
        return proxy

    def cut(self, proxy: Proxy) -> None:
        self._loop.call_soon_threadsafe(proxy.cut)

    def heal(self, proxy: Proxy) -> None:
        self._loop.call_soon_threadsafe(proxy.heal)

    def close(self) -> None:
        for proxy in self._proxies:
            self._run(proxy.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Real:
    """Clients of a real ensemble."""

    def __init__(self, hosts: str, chroot: str, session_s: float) -> None:
        self._chroot = chroot
        self._session_s = session_s
        self.fired: set[int] = set()
        # Sees and does what is not part of the history.
        self._observer = KazooClient(hosts, timeout=_SESSION_S)
        self._observer.start(20)
        self._observer.ensure_path(chroot)
        self._links = Links(hosts)
        self._proxies = [self._links.new() for _ in range(CLIENTS)]
        self._clients = [self._connect(proxy) for proxy in self._proxies]
        self._words = Words(chroot)

    def _connect(self, proxy: Proxy) -> KazooClient:
        again = KazooRetry(max_tries=-1, delay=_AGAIN_S, backoff=1, max_jitter=0.0)
        client = KazooClient(proxy.address, timeout=self._session_s, connection_retry=again)
        client.start(20)
        # A sign of life of the session, which is no part of the history.
        client.create(self._sign_of(client), ephemeral=True)
        return client

    def _sign_of(self, client: KazooClient) -> str:
        return f"{self._chroot}-{client.client_id[0]}"

    def close(self) -> None:
        for client in (*self._clients, self._observer):
            client.stop()
            client.close()
        self._links.close()

    def do(self, step: Step) -> Any:
        client = self._clients[step.client]
        answer: Any
        match step:
            case End():
                client.stop()
                client.close()
                self._clients[step.client] = self._connect(self._proxies[step.client])
                answer = None
            case Break():
                return self._break(client, self._proxies[step.client], step)
            case Multi(_, operations):
                request = client.transaction()
                for operation in operations:
                    add(request, operation, self._chroot)
                answer = request.commit()
            case Read(_, kind, path, number):
                watch: Callable[[Any], None] | None = None
                if number != NO_WATCH:
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
        return self._words.answer(answer, [each.client_id[0] for each in self._sync()])

    def _sync(self) -> list[KazooClient]:
        """Let all who are connected see what the others did, however many servers there are."""
        connected = [each for each in self._clients if each.connected]
        for each in connected:
            each.sync(self._chroot)
        return connected

    def _break(self, client: KazooClient, proxy: Proxy, step: Break) -> list[Any]:
        """Return what was answered meanwhile, and the states that the client went through."""
        states: list[str] = []
        client.add_listener(states.append)
        sign = self._sign_of(client)
        self._links.cut(proxy)
        until(lambda: states == [KazooState.SUSPENDED], "a connection that breaks")
        answers = [self.do(each) for each in step.meanwhile]
        if step.expires:
            until(lambda: self._observer.exists(sign) is None, "the end of a session", 60)
        self._links.heal(proxy)
        until(lambda: states[-1] == KazooState.CONNECTED, "a connection that comes back", 60)
        client.remove_listener(states.append)
        if step.expires:
            client.create(self._sign_of(client), ephemeral=True)
        self._sync()
        return [*answers, *states]

    def _fire(self, event: Any, number: int) -> None:
        if event.type != "NONE":
            self.fired.add(number)


class Compared:
    """What histories led to, on the real one as on the simulated one."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self.refused = self.fired = self.broken = self.expired = 0

    def compare(self, seed: int, steps: list[Step], session_s: float) -> None:
        """Do all steps on both; AssertionError at the first that has another outcome."""
        virtual = Virtual(seed)
        real = Real(self._ensemble.hosts, f"/{uuid.uuid4().hex}", session_s)
        try:
            for number, step in enumerate(steps):
                expected = virtual.do(step)
                assert real.do(step) == expected, f"seed {seed}, step {number}: {step}"
                self.refused += isinstance(expected, list) and "RolledBackError" in expected
                self.broken += isinstance(step, Break)
                self.expired += isinstance(step, Break) and KazooState.LOST in expected
                until(
                    lambda: real.fired == virtual.fired,
                    f"seed {seed}, step {number}: {step}: the real one told of "
                    f"{real.fired - virtual.fired}, the simulated one of "
                    f"{virtual.fired - real.fired}",
                )
            self.fired += len(virtual.fired)
        finally:
            real.close()


def test_random_histories_have_the_same_answers_and_watches(ensemble: Ensemble) -> None:
    both = Compared(ensemble)
    for seed in range(_HISTORIES):
        both.compare(seed, history(seed), _SESSION_S)
    # It would prove little if nothing had been refused, watched or broken.
    assert both.refused > 10
    assert both.fired > 50
    assert both.broken > 5
    assert both.expired == 0


@pytest.mark.slow
def test_histories_in_which_sessions_expire_do_too(ensemble: Ensemble) -> None:
    both = Compared(ensemble)
    for seed in range(100, 100 + _HISTORIES_WITH_EXPIRIES):
        both.compare(seed, history(seed, expiries=_EXPIRIES), _SHORT_SESSION_S)
    assert both.expired == _HISTORIES_WITH_EXPIRIES * _EXPIRIES
