"""Refusals: the answer for a partition that this broker does not hold, or does not lead."""

from __future__ import annotations

from uuid import UUID

from moldau.broker.partitions.partitions import Partitions
from moldau.cluster.state.topics import NO_LEADER
from moldau.wire.errors import Error
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.primitives import TopicKey

Leader = tuple[int, int]


def named(leader: int, epoch: int) -> Leader | None:
    """Return a leader and its epoch as an answer may name it (KIP-951); None if there is no leader.

    librdkafka crashes, or never asks again, if it is told that broker -1 leads (its issues 5280
    and 5430).
    """
    return None if leader == NO_LEADER else (leader, epoch)


def absent(partitions: Partitions, key: TopicKey, index: int) -> tuple[Error, Leader | None]:
    """Return the error, and who leads the partition if it exists and has a leader."""
    name = partitions.topic_name(key)
    state = partitions.state.partition(name, index)
    if state is not None:
        return Error.NOT_LEADER_OR_FOLLOWER, named(state.leader, state.leader_epoch)
    if isinstance(key, UUID) and not name:
        return Error.UNKNOWN_TOPIC_ID, None
    return Error.UNKNOWN_TOPIC_OR_PARTITION, None


def not_here(partitions: Partitions, key: TopicKey, index: int) -> FetchedPartition:
    """Return the answer to a fetch from such a partition."""
    error, leader = absent(partitions, key, index)
    # Kafka answers null if another broker has the partition, and an empty list if none has it.
    aborted: list[tuple[int, int]] | None = [] if error != Error.NOT_LEADER_OR_FOLLOWER else None
    return FetchedPartition(index, error, leader=leader, aborted=aborted)
