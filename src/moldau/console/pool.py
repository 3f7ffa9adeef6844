"""Pools of connections: threads borrow a cluster's connections, each as somebody."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.console.settings import ConsoleSettings
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError
from moldau.peer.view import parse_bootstrap
from moldau.security.client import ClientSecurity

# Connections that nobody has used for so long are closed.
_IDLE_S = 60.0
_MOST_IDLE = 4


class ClusterPool:
    """Clusters by who uses them. Any thread; one that is borrowed is the borrower's alone."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._addresses = parse_bootstrap(settings.bootstrap)
        self._lock = threading.Lock()
        self._idle: dict[ClientSecurity | None, list[tuple[float, Cluster]]] = {}
        self._is_closed = False

    @contextmanager
    def borrowed(self, security: ClientSecurity | None) -> Iterator[Cluster]:
        """Lend connections as somebody; after a failure they are not lent again."""
        cluster = self._take(security)
        try:
            yield cluster
        except PeerError:
            cluster.close()
            raise
        except BaseException:
            self._give_back(security, cluster)
            raise
        self._give_back(security, cluster)

    def new(self, security: ClientSecurity | None) -> Cluster:
        """Return connections of one's own, to be closed by whoever asked."""
        return Cluster(self._addresses, self._settings.peer(security))

    def forget(self, security: ClientSecurity | None) -> None:
        """Close what somebody has open who has signed out."""
        with self._lock:
            idle = self._idle.pop(security, [])
        for _, cluster in idle:
            cluster.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
        for clusters in idle.values():
            for _, cluster in clusters:
                cluster.close()

    def _take(self, security: ClientSecurity | None) -> Cluster:
        found: Cluster | None = None
        old: list[Cluster] = []
        with self._lock:
            oldest = time.monotonic() - _IDLE_S
            for key, clusters in list(self._idle.items()):
                old += [cluster for since, cluster in clusters if since < oldest]
                clusters[:] = [each for each in clusters if each[0] >= oldest]
                if not clusters:
                    del self._idle[key]
            if self._idle.get(security):
                found = self._idle[security].pop()[1]
        for cluster in old:
            cluster.close()
        return self.new(security) if found is None else found

    def _give_back(self, security: ClientSecurity | None, cluster: Cluster) -> None:
        with self._lock:
            idle = self._idle.setdefault(security, [])
            if not self._is_closed and len(idle) < _MOST_IDLE:
                idle.append((time.monotonic(), cluster))
                return
        cluster.close()
