"""Placement: how large an internal topic is made, and to which of its partitions a key belongs."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.state.internal_topics import InternalTopic


class Size(NamedTuple):
    """The size of an internal topic when it is created, from the broker's settings."""

    partitions: int
    replication_factor: int
    segment_bytes: int
    # None leaves min.insync.replicas to the cluster's default.
    min_isr: int | None = None


def new_topic(topic: InternalTopic, size: Size, brokers: int) -> NewTopic:
    """Describe the topic as it is created in a cluster of so many brokers."""
    replicas = min(size.replication_factor, brokers)
    configs = {**topic.configs, "segment.bytes": str(size.segment_bytes)}
    if size.min_isr is not None:
        configs["min.insync.replicas"] = str(min(size.min_isr, replicas))
    return NewTopic(topic.name, size.partitions, replicas, configs=configs)


@lru_cache(maxsize=65_536)
def partition_of(key: str, partitions: int) -> int:
    """Hash a key as Java hashes strings, made positive as Kafka does."""
    data = key.encode("utf-16-le", "surrogatepass")
    code = 0
    for unit in struct.unpack(f"<{len(data) // 2}H", data):
        code = (31 * code + unit) & 0xFFFF_FFFF
    if code >= 1 << 31:
        code -= 1 << 32
    return 0 if code == -(1 << 31) else abs(code) % partitions
