"""Connections kept per process: Spark uses its Python workers again, task after task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.peer.cluster import Cluster
from moldau.spark.source.options import ReadSettings

_Key = tuple[int, ReadSettings]
_idle: dict[_Key, list[Cluster]] = {}


@contextmanager
def borrowed(settings: ReadSettings) -> Iterator[Cluster]:
    """Yield a cluster's connections, of nobody else's until given back; closed after an error."""
    # A forked process must not talk on its parent's sockets.
    key = (os.getpid(), settings)
    idle = _idle.setdefault(key, [])
    cluster = idle.pop() if idle else Cluster(settings.bootstrap, settings.peer)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    idle.append(cluster)
