"""Views of a generation: what its members are told, and what is written down of it."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.broker.coordination.groups.classic.member import Member
from moldau.broker.coordination.groups.classic.messages import Joined, JoinedMember, Synced
from moldau.broker.coordination.groups.classic.roster import Roster
from moldau.broker.coordination.groups.records import GroupMetadata
from moldau.wire.errors import Error


def joined(roster: Roster, generation: int, member: Member, *, with_members: bool) -> Joined:
    """Tell a member which generation it is in; its leader also who else is, if they are known."""
    members: tuple[JoinedMember, ...] = ()
    if with_members and member.id == roster.leader:
        members = tuple(
            JoinedMember(each.id, each.instance_id, each.metadata(roster.protocol))
            for each in roster.members.values()
        )
    return Joined(
        Error.NONE,
        member.id,
        generation,
        roster.protocol_type,
        roster.protocol,
        roster.leader or "",
        members=members,
    )


def synced(roster: Roster, member: Member) -> Synced:
    """Tell a member what it was assigned."""
    return Synced(Error.NONE, roster.protocol_type, roster.protocol, member.assignment)


def metadata(roster: Roster, generation: int, assignments: Mapping[str, bytes]) -> GroupMetadata:
    """Write a generation down with these assignments."""
    return GroupMetadata(
        roster.protocol_type or "",
        generation,
        roster.protocol,
        roster.leader,
        -1,
        tuple(
            member.to_store(roster.protocol, assignments.get(member.id, b""))
            for member in roster.members.values()
        ),
    )
