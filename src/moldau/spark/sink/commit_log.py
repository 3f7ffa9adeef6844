"""The commit log: the topic of claims and decisions, read and appended to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import uuid4

from moldau.peer.cluster import Cluster
from moldau.peer.ledger import Ledger, Pair
from moldau.spark.names import COMMITS
from moldau.spark.sink.commits import Commits, Entry, encode

# A decision names every transaction of its batch: about 100 bytes for each task.
_CONFIGS = {
    "max.message.bytes": str(16 << 20),
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3600000",
    "compression.type": "producer",
}


class CommitLog:
    """What the log says up to `position`, for one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.commits = Commits()
        self._ledger = Ledger(cluster, COMMITS, _CONFIGS, self.commits.apply)

    @staticmethod
    def now_ms() -> int:
        return int(time.time() * 1000)

    @property
    def position(self) -> int:
        return self._ledger.position

    def require(self) -> None:
        """Create the topic unless it is there."""
        self._ledger.require()

    def read(self) -> Commits:
        """Read on to the end, as of now."""
        self._ledger.read()
        return self.commits

    def append(self, entries: Sequence[Entry], removed: Sequence[bytes] = ()) -> None:
        """Append entries, and tombstones for the keys that are `removed`, and read on past them.

        An attempt whose answer is lost may have been successful. So the next one has other keys.
        """

        def pairs() -> list[Pair]:
            added: list[Pair] = [(uuid4().hex.encode(), encode(entry)) for entry in entries]
            return [*added, *((key, None) for key in removed)]

        self._ledger.append(pairs)
