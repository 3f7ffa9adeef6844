"""Static members (KIP-345): they come back under another member id and keep what they had."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from moldau.broker.coordination.groups.classic.member import Member
from moldau.broker.coordination.groups.classic.messages import Joined, Protocols
from moldau.broker.coordination.groups.classic.roster import Roster


class Replacement(msgspec.Struct, frozen=True):
    """A static member's old self, to go back to if the new one cannot be stored."""

    old_id: str
    new_id: str
    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int
    was_leader: bool
    can_skip_assignment: bool

    @classmethod
    def of(cls, member: Member, new_id: str, *, is_leader: bool, can_skip: bool) -> Replacement:
        return cls(
            member.id,
            new_id,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            is_leader,
            can_skip,
        )

    def undo(self, member: Member, roster: Roster) -> None:
        """Give a member what it said before; its id is the caller's to give back."""
        roster.set_protocols(member, self.protocols)
        member.rebalance_timeout_ms = self.rebalance_timeout_ms
        member.session_timeout_ms = self.session_timeout_ms

    def answer(self, joined: Joined) -> Joined:
        """Tell the member that it goes on where its old self was."""
        if self.was_leader and not self.can_skip_assignment:
            # An old client that hears that it leads would bring an assignment, which needs a
            # rebalance; under its former name it only asks for its own.
            return replace(joined, leader=self.old_id, members=())
        return replace(joined, skip_assignment=self.was_leader)
