"""Messages: what a classic group is asked and what comes of it, as values."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from moldau.wire.errors import Error

# The assignors that a member can use, in the order of its preference, each with what it says there.
Protocols = tuple[tuple[str, bytes], ...]


class Join(msgspec.Struct, frozen=True):
    """A JoinGroup request. An empty member id: somebody new, or a static member that restarted."""

    member_id: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    # KIP-394, since v4: a new member first gets an id and then joins with it.
    requires_member_id: bool = True
    # KIP-814, since v9: a returning leader can be told to keep the assignment.
    can_skip_assignment: bool = True


class Sync(msgspec.Struct, frozen=True):
    """A SyncGroup request; only the leader's has assignments that count."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: dict[str, bytes] | None = None


class Departure(NamedTuple):
    """One member that leaves; without a member id an operator removes a static member."""

    member_id: str
    instance_id: str | None = None


class JoinedMember(NamedTuple):
    """A member as its leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(msgspec.Struct, frozen=True):
    """The answer to a Join."""

    error: Error
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Synced(msgspec.Struct, frozen=True):
    """The answer to a Sync."""

    error: Error
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
