"""Brokers that coordinate groups, for tests."""

from __future__ import annotations

from moldau.broker.coordination.placement import partition_of
from moldau.broker.partitions.partition import Partition
from moldau.broker.server import Broker as Server
from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS


def offsets_partition(server: Server, group: str = "g") -> Partition:
    return server.partitions[CONSUMER_OFFSETS.name, partition_of(group, 50)]
