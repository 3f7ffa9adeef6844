"""The assignor's view of a group: members with what they want and have, topics with their size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

# Partitions by the ids of their topics; a topic without any is not in it.
Assignment = Mapping[UUID, frozenset[int]]

NOTHING: Assignment = {}


class MemberSpec(NamedTuple):
    """A member: the topics that it reads, of those that exist, and what it was assigned so far."""

    topics: frozenset[UUID]
    assigned: Assignment = NOTHING
    instance_id: str | None = None
    rack: str | None = None


class Assignor(Protocol):
    """Divides partitions among the members of a group. Pure: the same group, the same result."""

    @property
    def name(self) -> str:
        """The name that clients and settings know it by."""
        ...

    def assign(
        self, members: Mapping[str, MemberSpec], sizes: Mapping[UUID, int]
    ) -> dict[str, Assignment]:
        """Return what each member is to read. `sizes` has the number of partitions of every topic
        that a member reads."""
        ...
