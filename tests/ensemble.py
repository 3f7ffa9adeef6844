"""One ZooKeeper ensemble for a whole run of the tests, however many processes take part in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Client, Listener

from moldau.testing import Ensemble

# Short ticks allow short sessions.
_TICK_MS = 200


class SharedEnsemble(Ensemble):
    """An ensemble that another process runs, one server: where it is, and nothing that ends it."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts

    def __repr__(self) -> str:
        return f"<shared ensemble on {self._hosts}>"

    def __len__(self) -> int:
        return 1

    @property
    def hosts(self) -> str:
        return self._hosts

    def host(self, server: int) -> str:
        return self._hosts


class EnsembleKeeper:
    """Starts an ensemble when it is first asked where one is, and ends it when it is closed.

    It lives in the process that all others of a run were started by, and so outlives them.
    """

    def __init__(self) -> None:
        self._listener = Listener(("127.0.0.1", 0))
        self._ensemble: Ensemble | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.address
        return str(host), int(port)

    def close(self) -> None:
        # An empty question is the last one.
        with Client(self.address) as connection:
            connection.send(False)
        self._thread.join()
        self._listener.close()
        if self._ensemble is not None:
            self._ensemble.close()

    def _serve(self) -> None:
        while True:
            with self._listener.accept() as connection:
                if not connection.recv():
                    return
                try:
                    connection.send(self._started().hosts)
                except Exception as problem:
                    connection.send(problem)

    def _started(self) -> Ensemble:
        if self._ensemble is None:
            ensemble = Ensemble(tick_ms=_TICK_MS)
            try:
                ensemble.start()
            except BaseException:
                ensemble.close()
                raise
            self._ensemble = ensemble
        return self._ensemble


@contextmanager
def running_ensemble(keeper: tuple[str, int] | None) -> Iterator[Ensemble]:
    """The ensemble of the keeper at this address, or one for the block where there is no keeper."""
    if keeper is None:
        with Ensemble(tick_ms=_TICK_MS) as ensemble:
            yield ensemble
        return
    with Client(keeper) as connection:
        connection.send(True)
        answer = connection.recv()
    if isinstance(answer, Exception):
        raise answer
    yield SharedEnsemble(answer)
