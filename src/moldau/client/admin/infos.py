"""The values that an `Admin` returns about a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    state: str
    is_simple: bool
    """Whether it only keeps offsets, without members that share partitions."""
    kind: str = "classic"
    """classic, or consumer for the protocol of KIP-848."""


@dataclass(frozen=True, slots=True)
class MemberInfo:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    name: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[MemberInfo, ...]
    kind: str = "classic"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in one partition.

    `lag` counts the messages that are kept and not committed. `seconds` is the age, by its
    timestamp, of the first of them: 0 when there is none, and growing while nobody reads; None when
    it was not asked for or did not come in time. Without a commit, nothing is known about either.
    """

    topic: str
    partition: int
    committed: int | None
    start: int
    end: int
    lag: int | None
    seconds: float | None = None
    member: str | None = None
