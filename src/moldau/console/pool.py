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

# Who asks, and from where if that is to be told.
Key = tuple[ClientSecurity | None, str]


class ClusterPool:
    """Clusters by who uses them. Any thread; one that is borrowed is the borrower's alone."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._addresses = parse_bootstrap(settings.bootstrap)
        self._lock = threading.Lock()
        self._idle: dict[Key, list[tuple[float, Cluster]]] = {}
        self._is_closed = False

    @contextmanager
    def borrowed(self, security: ClientSecurity | None, address: str = "") -> Iterator[Cluster]:
        """Lend connections as somebody at an address; after a failure they are not lent again."""
        key = self._key(security, address)
        cluster = self._take(key)
        try:
            yield cluster
        except PeerError:
            cluster.close()
            raise
        except BaseException:
            self._give_back(key, cluster)
            raise
        self._give_back(key, cluster)

    def new(self, security: ClientSecurity | None, address: str = "") -> Cluster:
        """Return connections of one's own, to be closed by whoever asked."""
        return Cluster(self._addresses, self._settings.peer(security, address))

    def forget(self, security: ClientSecurity | None) -> None:
        """Close what somebody has open who has signed out."""
        with self._lock:
            keys = [key for key in self._idle if key[0] == security]
            idle = [each for key in keys for each in self._idle.pop(key)]
        for _, cluster in idle:
            cluster.close()

    def _key(self, security: ClientSecurity | None, address: str) -> Key:
        """Return by what connections are told apart: brokers know addresses only by our word."""
        return security, address if self._settings.vouch is not None else ""

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
        for clusters in idle.values():
            for _, cluster in clusters:
                cluster.close()

    def _take(self, wanted: Key) -> Cluster:
        found: Cluster | None = None
        old: list[Cluster] = []
        with self._lock:
            oldest = time.monotonic() - _IDLE_S
            for key, clusters in list(self._idle.items()):
                old += [cluster for since, cluster in clusters if since < oldest]
                clusters[:] = [each for each in clusters if each[0] >= oldest]
                if not clusters:
                    del self._idle[key]
            if self._idle.get(wanted):
                found = self._idle[wanted].pop()[1]
        for cluster in old:
            cluster.close()
        return self.new(*wanted) if found is None else found

    def _give_back(self, key: Key, cluster: Cluster) -> None:
        with self._lock:
            idle = self._idle.setdefault(key, [])
            if not self._is_closed and len(idle) < _MOST_IDLE:
                idle.append((time.monotonic(), cluster))
                return
        cluster.close()
