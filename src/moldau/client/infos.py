"""What an `Admin` tells about a cluster."""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class MemberInfo:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    name: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[MemberInfo, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition.

    `seconds` is the age of the next message to read, by its timestamp and compared with the newest
    one's: 0 without lag, None when it was not asked for or the message is gone.
    """

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int
    seconds: float | None = None
    member: str | None = None
