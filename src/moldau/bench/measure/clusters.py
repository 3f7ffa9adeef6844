"""Clusters for the measurements that need one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from moldau.bench.errors import BenchFailed, Unavailable
from moldau.bench.workbench import Workbench
from moldau.local.ensemble import NoZooKeeper
from moldau.local.process import BrokerFailed
from moldau.testing.cluster import Cluster

SESSION_TIMEOUT_S = 2.0
_POLL_S = 0.002


@contextmanager
def cluster(bench: Workbench, name: str) -> Iterator[Cluster]:
    """Three brokers and one ZooKeeper server, gone at the end of the block."""
    if find_spec("pyspark") is None:
        raise Unavailable("pyspark not installed: pip install 'moldau[spark]'")
    settings = {
        "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
        # Followers that are busy under full load are not to fall out of sync, nor leaders to move.
        "replica.lag.time.max.ms": "30000",
        "auto.leader.rebalance.enable": "false",
    }
    try:
        with Cluster(3, 1, settings, folder=bench.folder / name) as cluster:
            yield cluster
            # Its data is discarded.
            cluster.kill(*cluster.running)
    except NoZooKeeper as problem:
        raise Unavailable(str(problem)) from None
    except (BrokerFailed, TimeoutError) as problem:
        raise BenchFailed(str(problem)) from None


def seconds_until(is_so: Callable[[], bool], what: str, since: float, timeout_s: float) -> float:
    """Return how long after `since` (of `time.monotonic`) something was so."""
    while not is_so():
        if time.monotonic() - since > timeout_s:
            raise BenchFailed(f"timed out after {timeout_s:g} s waiting for: {what}")
        time.sleep(_POLL_S)
    return time.monotonic() - since
