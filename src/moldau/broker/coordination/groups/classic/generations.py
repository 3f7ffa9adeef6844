"""Generations: the state machine of a classic group, from each generation to the next.

    state                 what members do in it               what ends it
    Empty                 there are none; offsets may remain  a join -> PreparingRebalance
    PreparingRebalance    join again, once a heartbeat has    all did, or the time for it is up
                          told them to                        -> CompletingRebalance; nobody is
                                                              left -> Empty
    CompletingRebalance   ask for their assignment, which     it is stored -> Stable; a change, or
                          the leader brings                   one is late -> PreparingRebalance
    Stable                read, commit, send heartbeats       one joins, leaves, changes or falls
                                                              silent -> PreparingRebalance
    Dead                  nothing: the group was deleted, or  (nothing)
                          another broker coordinates it

A generation begins when the join phase ends: it has a number, a set of members, a protocol that all
of them support, and a leader, who decides on the assignment.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.groups.classic import views
from moldau.broker.coordination.groups.classic.initial_delay import InitialDelay
from moldau.broker.coordination.groups.classic.member import Member
from moldau.broker.coordination.groups.classic.messages import Joined, Synced
from moldau.broker.coordination.groups.classic.pending import Pending
from moldau.broker.coordination.groups.classic.roster import Roster
from moldau.broker.coordination.groups.classic.store import Purpose, StoreMetadata
from moldau.broker.coordination.groups.classic.subscription import CONSUMER
from moldau.broker.coordination.groups.classic.waiting import Waiting
from moldau.broker.coordination.groups.group import Effect, Ticket
from moldau.broker.coordination.groups.records import GroupMetadata
from moldau.broker.coordination.groups.report import Cause, Reasons, Rebalanced
from moldau.wire.errors import Error

# How long a new member's parked JoinGroup is believed in; it has no id yet to send heartbeats with.
NEW_MEMBER_TIMEOUT_MS = 300_000
# The most times that a join phase without members is checked again.
_RETRY_MS = 1_000


class State(Enum):
    """The states of a group; the value is Kafka's name."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Generations:
    """The state machine. No I/O and no clock: calls take `now`, and what is to be done about them
    gathers in `effects`. Once `due_at` has come, `expire` is to be called."""

    __slots__ = (
        "_group_id",
        "_initial_delay",
        "_join_by",
        "_reasons",
        "_sync_by",
        "_unsynced",
        "due_at",
        "effects",
        "number",
        "pending",
        "roster",
        "state",
        "subscribed",
        "waiting",
    )

    def __init__(self, group_id: str, initial_delay_ms: int) -> None:
        self.state = State.EMPTY
        self.number = 0
        self.roster = Roster()
        self.pending = Pending()
        # The topics that the members want between them; None where that is not known.
        self.subscribed: frozenset[str] | None = None
        self.effects: list[Effect] = []
        self.waiting = Waiting(self.effects)
        self.due_at = NEVER
        self._group_id = group_id
        self._initial_delay = InitialDelay(initial_delay_ms)
        # The members that have not asked for their assignment yet.
        self._unsynced: set[str] = set()
        self._join_by = NEVER
        self._sync_by = NEVER
        self._reasons: Reasons | None = None

    def restore(self, metadata: GroupMetadata, now: int) -> None:
        """Go on from what was written down; members have a session timeout to be heard of."""
        roster = self.roster
        self.number = metadata.generation
        roster.protocol_type = metadata.protocol_type or None
        roster.protocol = metadata.protocol
        roster.leader = metadata.leader
        for stored in metadata.members:
            member = Member.stored(stored, metadata.protocol)
            roster.enter(member)
            self.expect(member, now)
        self.state = State.STABLE if roster.members else State.EMPTY
        if roster.leader not in roster.members:
            roster.leader = next(iter(roster.members), None)
        self.subscribed = roster.subscribed_topics()

    def take_over(self, members: Iterable[Member], number: int, now: int) -> None:
        """Go on with the members of a consumer group, who have to rejoin."""
        roster = self.roster
        roster.protocol_type = CONSUMER
        for member in members:
            roster.enter(member)
            self.expect(member, now)
        self.number = number
        self.state = State.STABLE
        roster.protocol = roster.choose_protocol()
        self.subscribed = roster.subscribed_topics()

    # The join phase

    def enter(self, member: Member, ticket: Ticket, now: int) -> None:
        """Somebody new has joined."""
        self.pending.take(member.id)
        self.roster.enter(member)
        self.waiting.joining[member.id] = ticket
        member.expires_at = now + NEW_MEMBER_TIMEOUT_MS
        self.arm(member.expires_at)
        self._initial_delay.newcomer()
        self.note(Cause.JOINED, member.id, now)
        self.rebalance(now)

    def rebalance(self, now: int) -> None:
        """Begin to rebalance, or go on if everybody has been heard of."""
        if self.state is State.PREPARING_REBALANCE:
            self.complete_join_if_all_did(now)
        else:
            self.prepare(now)

    def prepare(self, now: int) -> None:
        """Have everybody join again."""
        if self.state is State.COMPLETING_REBALANCE:
            self._reset_assignments(Error.REBALANCE_IN_PROGRESS, now)
        self._unsynced.clear()
        self._sync_by = NEVER
        is_initial = self.state is State.EMPTY
        delay = self._initial_delay
        self.state = State.PREPARING_REBALANCE
        if not is_initial:
            delay.is_on = False
            self.complete_join_if_all_did(now)
            if self.state is State.PREPARING_REBALANCE:
                self._join_by = now + self.roster.rebalance_timeout_ms
                self.arm(self._join_by)
        elif delay.length_ms:
            self._join_by = delay.begin(now, self.roster.rebalance_timeout_ms)
            self.arm(self._join_by)
        else:
            self._complete_join(now)

    def complete_join_if_all_did(self, now: int) -> None:
        if (
            self.state is State.PREPARING_REBALANCE
            and not self._initial_delay.is_on
            and not self.pending
            and len(self.waiting.joining) == len(self.roster.members)
        ):
            self._complete_join(now)

    def _end_join(self, now: int) -> None:
        """The time for joining is up."""
        prolonged = self._initial_delay.prolong(now) if self._initial_delay.is_on else None
        if prolonged is None:
            self._complete_join(now)
        else:
            self._join_by = prolonged

    def _complete_join(self, now: int) -> None:
        """Begin the next generation with those who have joined, and static members."""
        roster, waiting = self.roster, self.waiting
        for member in list(roster.members.values()):
            if member.id not in waiting.joining and member.instance_id is None:
                self.note(Cause.LATE, member.id, now)
                self.remove(member.id)
        if roster.members and not waiting.joining:
            # Only static members, all silent: until they come back or their sessions end.
            self._join_by = now + max(roster.rebalance_timeout_ms, _RETRY_MS)
            self.arm(self._join_by)
            return
        self._join_by = NEVER
        self._initial_delay.is_on = False
        self.number += 1
        if not roster.members:
            self._become_empty(now)
            return
        if roster.leader not in waiting.joining:
            roster.leader = next(iter(waiting.joining))
        roster.protocol = roster.choose_protocol()
        self.subscribed = roster.subscribed_topics()
        self.state = State.COMPLETING_REBALANCE
        self._unsynced = set(roster.members)
        self._sync_by = now + roster.rebalance_timeout_ms
        self.arm(self._sync_by)
        joining = waiting.take_joins()
        for member in roster.members.values():
            member.is_new = False
            self.expect(member, now)
            if member.id in joining:
                waiting.answer(joining[member.id], self.joined(member))

    def _become_empty(self, now: int) -> None:
        roster = self.roster
        roster.protocol = None
        roster.leader = None
        self.state = State.EMPTY
        self.subscribed = roster.subscribed_topics()
        metadata = views.metadata(roster, self.number, {})
        self.effects.append(StoreMetadata(Purpose.EMPTY, metadata))
        self._report(now)

    def joined(self, member: Member) -> Joined:
        """Tell a member of the generation, or of the one before while the next is prepared."""
        is_assigning = self.state is not State.PREPARING_REBALANCE
        return views.joined(self.roster, self.number, member, with_members=is_assigning)

    # The assignment

    def has_synced(self, member_id: str) -> None:
        """A member has asked for its assignment, or is gone."""
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_by = NEVER

    def assigned(self, metadata: GroupMetadata, error: Error, now: int) -> None:
        """The leader's assignment is stored, or cannot be; by now it may be out of date."""
        if self.state is not State.COMPLETING_REBALANCE or metadata.generation != self.number:
            return
        if error:
            self._reset_assignments(error, now)
            self.note(Cause.UNSTORED, metadata.leader or "", now)
            self.prepare(now)
            return
        members = self.roster.members
        for stored in metadata.members:
            if stored.member_id in members:
                members[stored.member_id].assignment = stored.assignment
        self.state = State.STABLE
        for member_id, ticket in self.waiting.take_syncs().items():
            member = members[member_id]
            self.waiting.answer(ticket, views.synced(self.roster, member))
            self.expect(member, now)
        self._report(now)

    def _reset_assignments(self, error: Error, now: int) -> None:
        members = self.roster.members
        for member in members.values():
            member.assignment = b""
        for member_id, ticket in self.waiting.take_syncs().items():
            self.waiting.answer(ticket, Synced(error))
            self.expect(members[member_id], now)

    # Members come and go

    def dismiss(self, member_id: str) -> None:
        """Remove a member and tell it, should it still wait for the others."""
        self.waiting.send_away(member_id, Error.UNKNOWN_MEMBER_ID, "")
        self.remove(member_id)

    def remove(self, member_id: str) -> None:
        self.roster.remove(member_id)
        self.waiting.forget(member_id)
        self.has_synced(member_id)

    def rename(self, member: Member, new_id: str) -> None:
        """Know a static member by another id; whoever waits under the old one is fenced."""
        old_id = member.id
        self.waiting.send_away(old_id, Error.FENCED_INSTANCE_ID, old_id)
        self.roster.rename(member, new_id)
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)

    def go_on_without(self, is_smaller: bool, now: int) -> None:
        """After members are gone (or only ids that nobody joined with): rebalance where needed."""
        if is_smaller and self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare(now)
        else:
            self.complete_join_if_all_did(now)

    def die(self, error: Error) -> None:
        """The group ends here: everyone who waits is told so."""
        self.waiting.send_all_away(error)
        self.state = State.DEAD
        self.due_at = NEVER

    # Deadlines

    def expect(self, member: Member, now: int) -> None:
        """Give a member a session timeout to be heard of."""
        member.expires_at = now + member.session_timeout_ms
        self.arm(member.expires_at)

    def arm(self, at: int) -> None:
        if at < self.due_at:
            self.due_at = at

    def expire(self, now: int) -> None:
        """Do what is due by `now`, and find out what is due next."""
        if self.state is State.DEAD:
            return
        self.pending.expire(now)
        is_smaller = False
        for member in list(self.roster.members.values()):
            if member.expires_at <= now and self._needs_heartbeats(member):
                self.note(Cause.SILENT, member.id, now)
                self.dismiss(member.id)
                is_smaller = True
        self.go_on_without(is_smaller, now)
        if self._join_by <= now:
            self._end_join(now)
        if self._sync_by <= now:
            # In the members' order: a set's own is another in every process.
            for member_id in [each for each in self.roster.members if each in self._unsynced]:
                self.note(Cause.UNSYNCED, member_id, now)
                self.remove(member_id)
            self.prepare(now)
        self._find_next_deadline()

    def _needs_heartbeats(self, member: Member) -> bool:
        """Excuse members that wait for an answer, unless nobody ever knew that they were there."""
        return member.is_new or member.id not in self.waiting

    def _find_next_deadline(self) -> None:
        deadlines = [self._join_by, self._sync_by, self.pending.due_at]
        deadlines += [
            member.expires_at
            for member in self.roster.members.values()
            if self._needs_heartbeats(member)
        ]
        self.due_at = min(deadlines)

    # Reports

    def note(self, cause: Cause, member_id: str, now: int) -> None:
        """Remember why the next generation is needed."""
        if self._reasons is None:
            self._reasons = Reasons(now)
        self._reasons.add(cause, member_id)

    def _report(self, now: int) -> None:
        reasons, self._reasons = self._reasons or Reasons(now), None
        self.effects.append(
            Rebalanced(
                self._group_id,
                self.number,
                len(self.roster.members),
                self.roster.protocol,
                self.roster.leader,
                now - reasons.began,
                reasons,
            )
        )

    def take_effects(self) -> list[Effect]:
        effects = self.effects.copy()
        self.effects.clear()
        return effects
