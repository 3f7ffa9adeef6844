"""A real broker for tests: in this process, on a free port, gone afterwards.

    from moldau.testing import Broker

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

With pytest, the fixture `moldau_broker` does the same without an import. `Cluster` is several
brokers in processes of their own, with a ZooKeeper ensemble, for tests of what happens when one of
them dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.local.ensemble import Ensemble
    from moldau.testing.broker import Broker
    from moldau.testing.cluster import Cluster

__all__ = ["Broker", "Cluster", "Ensemble"]


def __getattr__(name: str) -> object:
    # Every pytest run imports this package for the plugin's sake; few of them start a broker.
    if name == "Broker":
        from moldau.testing.broker import Broker

        return Broker
    if name == "Cluster":
        from moldau.testing.cluster import Cluster

        return Cluster
    if name == "Ensemble":
        from moldau.local.ensemble import Ensemble

        return Ensemble
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
