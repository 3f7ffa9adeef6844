"""The parts that a consumer group is made of, each kept in a record of its own."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import Assignment

# Partitions that a member has, by topic, each with the epoch in which it was assigned.
Owned = Mapping[UUID, Mapping[int, int]]

NO_PARTITIONS: Owned = {}


class Part(IntEnum):
    """The kinds of parts, by the versions of their records' keys."""

    EPOCH = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


class GroupEpoch(NamedTuple):
    """How often what the assignment depends on has changed, and a hash of the topics of that."""

    epoch: int
    metadata_hash: int = 0


class TargetEpoch(NamedTuple):
    """The group epoch that the target assignment was made for, and when (KIP-1263)."""

    epoch: int
    assigned_at_ms: int = 0


class ClassicMetadata(NamedTuple):
    """What a member said in JoinGroup that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Member(NamedTuple):
    """What a member said of itself. A `regex` of "" means none, as no topics do."""

    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None


# Whoever has said nothing yet.
STRANGER = Member()


class MemberState(IntEnum):
    """Where a member is between what it has and what it shall have; by Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Current(NamedTuple):
    """What a member has: it is told `assigned`, and still holds `revoking` until it says that it
    does not. `epoch` is the target's that it has come to, `previous_epoch` the one that it may
    still believe in, should an answer have been lost."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = NO_PARTITIONS
    revoking: Owned = NO_PARTITIONS


class ResolvedRegex(NamedTuple):
    """The topics that matched a regular expression, and when they were looked up."""

    topics: frozenset[str]
    version: int = 0
    resolved_at_ms: int = 0


# What a part holds; None is a part that is not there.
Value = GroupEpoch | TargetEpoch | Member | Assignment | Current | ResolvedRegex | None
