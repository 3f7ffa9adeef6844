"""A real ZooKeeper ensemble on this machine, from the jars that come with PySpark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from moldau.local.ports import HOST, free_ports
from moldau.local.zookeeper_server import (
    NoZooKeeper,
    Ports,
    ServerEnded,
    ZooKeeperServer,
    server_command,
)

__all__ = ["Ensemble", "NoZooKeeper"]

START_WITHIN_S = 60.0

_ATTEMPTS = 3
_POLL_S = 0.05


class Ensemble:
    """One or more ZooKeeper servers, each a process of its own on free ports of 127.0.0.1.

        with Ensemble(servers=3) as ensemble:
            client = KazooClient(ensemble.hosts)
            ensemble.kill(ensemble.leader())

    Servers are numbered from 0. Their data lies in a temporary folder that goes when the `with`
    block ends, or in `folder`, which stays and from which another ensemble of the same size goes
    on. They end with this process, also when it is killed. Not for several threads at once.

    Sessions may be as short as two ticks of `tick_ms`.
    """

    def __init__(
        self, servers: int = 1, folder: Path | str | None = None, tick_ms: int = 500
    ) -> None:
        if servers < 1:
            raise ValueError(f"an ensemble needs at least one server, not {servers}")
        self.tick_ms = tick_ms
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="moldau-zookeeper-")
            folder = self._temporary.name
        self.folder = Path(folder).absolute()
        self._servers = [
            ZooKeeperServer(self.folder / f"server-{i}", i + 1) for i in range(servers)
        ]
        self._is_configured = False

    def __repr__(self) -> str:
        place = f"on {self.hosts}" if self._is_configured else "not started"
        return f"<moldau.testing.Ensemble of {len(self._servers)}, {place}>"

    def __len__(self) -> int:
        return len(self._servers)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    @property
    def hosts(self) -> str:
        """Where clients connect to: HOST:PORT,..."""
        return ",".join(self.host(i) for i in range(len(self._servers)))

    def host(self, server: int) -> str:
        """Return the address of one server."""
        if not self._is_configured:
            raise RuntimeError("the ensemble has no address before it has started; use `with`")
        return f"{HOST}:{self._servers[server].ports.client}"

    def log(self, server: int) -> Path:
        """Return where a server's complaints are written."""
        return self._servers[server].log

    def is_running(self, server: int) -> bool:
        return self._servers[server].is_running

    def start(self, server: int | None = None) -> None:
        """Start all servers and return when the ensemble serves, or start one of them again.

        A single server is waited for until it answers; whether it serves depends on the others.
        """
        if server is not None:
            self._servers[server].start(server_command())
            self._wait(lambda: self._answers(server), f"server {server} did not answer")
            return
        command = server_command()
        # Somebody else may take a port between its choice and the start; later starts keep theirs,
        # for clients know them.
        attempts = 1 if self._is_configured else _ATTEMPTS
        for attempt in range(1, attempts + 1):
            if not self._is_configured or attempt > 1:
                self._configure()
            for each in self._servers:
                if not each.is_running:
                    each.start(command)
            try:
                self.wait_until_serving()
                return
            except ServerEnded:
                self._stop_all()
                if attempt == attempts:
                    raise

    def stop(self, server: int | None = None) -> None:
        """End one server, or all, in good order."""
        if server is None:
            self._stop_all()
        else:
            self._servers[server].end(gently=True)

    def kill(self, server: int) -> None:
        """End a server as kill -9 does."""
        self._servers[server].end(gently=False)

    def close(self) -> None:
        """End all servers and remove the temporary folder."""
        try:
            self._stop_all()
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()

    def leader(self) -> int:
        """Return the server that leads, or the only one; waits while they elect."""
        found: list[int] = []

        def is_known() -> bool:
            modes = {i: self._mode(i) for i, each in enumerate(self._servers) if each.is_running}
            found[:] = [i for i, mode in modes.items() if mode in ("leader", "standalone")]
            return len(found) == 1

        self._wait(is_known, "no server is the leader")
        return found[0]

    def wait_until_serving(self) -> None:
        """Return when every server that runs also serves clients."""

        def all_serve() -> bool:
            running = [i for i, each in enumerate(self._servers) if each.is_running]
            return bool(running) and all(self._mode(i) is not None for i in running)

        self._wait(all_serve, "the ensemble accepts no sessions")

    def _stop_all(self) -> None:
        for server in self._servers:
            server.request_stop()
        for server in self._servers:
            server.end(gently=True)

    def _wait(self, is_so: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + START_WITHIN_S
        while not is_so():
            for server in self._servers:
                server.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{problem} within {START_WITHIN_S:g} s; see {self.log(0)}")
            time.sleep(_POLL_S)

    def _answers(self, server: int) -> bool:
        return bool(self._servers[server].ask("srvr"))

    def _mode(self, server: int) -> str | None:
        """Return the server's role in the ensemble; None while it does not serve."""
        for line in self._servers[server].ask("srvr").splitlines():
            name, _, value = line.partition(": ")
            if name == "Mode":
                return value
        return None

    def _configure(self) -> None:
        ports = free_ports(3 * len(self._servers))
        for i, server in enumerate(self._servers):
            server.ports = Ports(*ports[3 * i : 3 * i + 3])
        members = ""
        if len(self._servers) > 1:
            members = "".join(
                f"server.{each.number}={HOST}:{each.ports.quorum}:{each.ports.election}\n"
                for each in self._servers
            )
        for server in self._servers:
            server.configure(self.tick_ms, members)
        self._is_configured = True
