"""Clusters in which replicas are eligible to lead, for tests."""

from __future__ import annotations

from uuid import UUID

from moldau.cluster.state.changes import BrokerJoined, TopicCreated
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import BrokerInfo, PartitionState, Topic

REPLICAS = (0, 1, 2)


def never() -> bool:
    return False


def info(broker: int) -> BrokerInfo:
    return BrokerInfo(broker, "localhost", 9092 + broker, keeps_elr=True)


def cluster(partition: PartitionState, *live: int) -> ClusterState:
    state = ClusterState()
    state.apply(TopicCreated(Topic("t", UUID(int=1), (partition,))))
    for broker in live:
        state.apply(BrokerJoined(info(broker)))
    return state
