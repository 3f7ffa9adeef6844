"""The status topic: where running pipelines say how they are, and are asked to stop."""

from __future__ import annotations

import getpass
import socket
import time

from moldau.client.pipelines.status import REQUEST, TOPIC, PipelineStatus, Request, Statuses, encode
from moldau.peer.cluster import Cluster
from moldau.peer.ledger import Ledger

# Each pipeline has one record that counts, so little is kept.
_CONFIGS = {
    "segment.bytes": str(1 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3600000",
}


class StatusTopic:
    """The topic of one cluster, for one thread.

    Methods raise PeerError for brokers that do not answer or refuse.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._statuses = Statuses()
        apply = self._statuses.apply
        self._ledger = Ledger(
            cluster, TOPIC, _CONFIGS, lambda key, value, offset: apply(key, value)
        )

    def exists(self) -> bool:
        return self._ledger.exists()

    def require(self) -> None:
        """Create the topic unless it is there."""
        self._ledger.require()

    def read(self) -> Statuses:
        """Return what all pipelines have said, as of now; nothing where the topic does not
        exist."""
        if self._ledger.position or self._ledger.exists():
            self._ledger.read()
        return self._statuses

    def write(self, status: PipelineStatus) -> None:
        """Say how a pipeline is, instead of what was said before."""
        self._put(status.name, encode(status))

    def forget(self, name: str) -> None:
        """Remove the status of a pipeline."""
        self._put(name, None)

    def ask_to_stop(self, name: str, run: str | None = None) -> Request:
        """Leave a request for a pipeline, or for one run of it."""
        request = Request(name=name, run=run, by=who(), at_ms=int(time.time() * 1000))
        self._put(name + REQUEST, encode(request))
        return request

    def withdraw(self, name: str) -> None:
        """Remove the request to a pipeline."""
        self._put(name + REQUEST, None)

    def _put(self, key: str, value: bytes | None) -> None:
        # Written twice, a record says the same.
        self._ledger.append(lambda: [(key.encode(), value)])


def who() -> str:
    """Return who is at work here, for others to read."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
