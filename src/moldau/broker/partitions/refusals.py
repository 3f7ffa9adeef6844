"""Refusals: the answer for a partition that this broker does not hold, or does not lead."""

from __future__ import annotations

from uuid import UUID

from moldau.broker.partitions.partitions import Partitions
from moldau.wire.errors import Error
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.primitives import TopicKey


def absent(
    partitions: Partitions, key: TopicKey, index: int
) -> tuple[Error, tuple[int, int] | None]:
    """Return the error, and where the partition is led (broker id, leader epoch) if it exists at
    all."""
    name = partitions.topic_name(key)
    state = partitions.state.partition(name, index)
    if state is not None:
        return Error.NOT_LEADER_OR_FOLLOWER, (state.leader, state.leader_epoch)
    if isinstance(key, UUID) and not name:
        return Error.UNKNOWN_TOPIC_ID, None
    return Error.UNKNOWN_TOPIC_OR_PARTITION, None


def not_here(partitions: Partitions, key: TopicKey, index: int) -> FetchedPartition:
    """Return the answer to a fetch from such a partition."""
    error, leader = absent(partitions, key, index)
    # Kafka answers null if another broker has the partition, and an empty list if none has it.
    return FetchedPartition(index, error, leader=leader, aborted=None if leader else [])
