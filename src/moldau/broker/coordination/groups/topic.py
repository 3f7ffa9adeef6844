"""The topic `__consumer_offsets`: what it is like, and where in it a group belongs."""

from __future__ import annotations

import struct
from functools import lru_cache

from moldau.broker.settings import BrokerSettings
from moldau.cluster.decisions.assignment import NewTopic

OFFSETS_TOPIC = "__consumer_offsets"


def offsets_topic(settings: BrokerSettings, brokers: int) -> NewTopic:
    """The topic as it is created on first use, in a cluster of so many brokers."""
    return NewTopic(
        OFFSETS_TOPIC,
        settings.offsets_topic_num_partitions,
        min(settings.offsets_topic_replication_factor, brokers),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
        },
    )


@lru_cache(maxsize=65_536)
def partition_of(group_id: str, partitions: int) -> int:
    """Where a group belongs: the hash of Java's strings, made positive as Kafka does."""
    data = group_id.encode("utf-16-le", "surrogatepass")
    code = 0
    for unit in struct.unpack(f"<{len(data) // 2}H", data):
        code = (31 * code + unit) & 0xFFFF_FFFF
    if code >= 1 << 31:
        code -= 1 << 32
    return 0 if code == -(1 << 31) else abs(code) % partitions
