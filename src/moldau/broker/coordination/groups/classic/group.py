"""The classic group: who is in it, which generation it is at, who was assigned what.

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
of them support, and a leader, who decides on the assignment. What is in subscriptions and
assignments is the clients' affair, so any assignor works, eager or cooperative, and so do groups
that are not consumers. Whoever asks with an older generation, or under the instance id of a static
member that restarted since (KIP-345), is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.groups.classic.member import Member
from moldau.broker.coordination.groups.classic.messages import (
    Departure,
    Join,
    Joined,
    JoinedMember,
    Protocols,
    Purpose,
    Replacement,
    StoreMetadata,
    Sync,
    Synced,
)
from moldau.broker.coordination.groups.classic.report import Cause, Reasons, Rebalanced
from moldau.broker.coordination.groups.classic.roster import Roster
from moldau.broker.coordination.groups.classic.subscription import CONSUMER
from moldau.broker.coordination.groups.group import Answer, Effect, Ticket
from moldau.broker.coordination.groups.records import GroupMetadata
from moldau.wire.errors import Error

# How long a new member's parked JoinGroup is believed in; it has no id yet to send heartbeats with.
NEW_MEMBER_TIMEOUT_MS = 300_000
# An id that was given out is used at once or never; rebalances wait for it, and it takes memory.
_PENDING_MS = 45_000
_MOST_PENDING = 10_000
# How often a join phase that nobody took part in is looked at again, at most.
_RETRY_MS = 1_000
# Member ids are made of names that clients choose, and must fit a string of the protocol.
_LONGEST_PREFIX = 255


class State(Enum):
    """Where a group is between two generations; the value is Kafka's name."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup:
    """The state machine. No I/O and no clock, and nobody is waited for.

    A call takes `now`, in milliseconds of a clock that only goes forward, and returns the effects
    that the caller has to see to, in order. Once `due_at` has come the caller calls `expire`; a
    heartbeat only moves its member's own deadline, which `expire` finds out later.

    Tickets stand for requests that are not answered yet; each is handed back once, in an Answer.
    """

    kind = "classic"

    __slots__ = (
        "_due_initially",
        "_effects",
        "_is_initial",
        "_join_by",
        "_joining",
        "_new_id",
        "_newcomers",
        "_reasons",
        "_sync_by",
        "_syncing",
        "_unsynced",
        "due_at",
        "generation",
        "id",
        "initial_delay_ms",
        "leader",
        "max_size",
        "members",
        "pending",
        "protocol",
        "protocol_type",
        "roster",
        "state",
        "subscribed",
    )

    def __init__(
        self,
        id: str,
        *,
        new_id: Callable[[], str],
        initial_delay_ms: int = 0,
        max_size: int = NEVER,
    ) -> None:
        self.id = id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.roster = Roster()
        self.members = self.roster.members
        # Ids that were given out and not joined with yet, and until when they are good (KIP-394).
        self.pending: dict[str, int] = {}
        # The topics that the members want between them; None where that is not known.
        self.subscribed: frozenset[str] | None = None
        self.due_at = NEVER
        self.initial_delay_ms = initial_delay_ms
        self.max_size = max_size
        self._new_id = new_id
        self._joining: dict[str, Ticket] = {}
        self._syncing: dict[str, Ticket] = {}
        self._unsynced: set[str] = set()
        self._join_by = NEVER
        self._sync_by = NEVER
        # Of the first rebalance of an empty group: how much longer newcomers may put it off.
        self._is_initial = False
        self._newcomers = False
        self._due_initially = 0
        self._reasons: Reasons | None = None
        self._effects: list[Effect] = []

    def restore(self, metadata: GroupMetadata, now: int) -> list[Effect]:
        """Go on from what was written down; members have a session timeout to be heard of."""
        self.protocol_type = metadata.protocol_type or None
        self.generation = metadata.generation
        self.protocol = metadata.protocol
        self.leader = metadata.leader
        for stored in metadata.members:
            member = Member.stored(stored, metadata.protocol)
            self._enter(member)
            self._expect(member, now)
        self.state = State.STABLE if self.members else State.EMPTY
        if self.leader not in self.members:
            self.leader = next(iter(self.members), None)
        self.subscribed = self._subscribed_topics()
        if len(self.members) > self.max_size:
            self._note(Cause.SHRUNK, next(reversed(self.members)), now)
            self._prepare_rebalance(now)
        return self._take_effects()

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_dead(self) -> bool:
        return self.state is State.DEAD

    @property
    def is_consumer(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def is_forgettable(self) -> bool:
        """Whether nobody is in the group or on the way into it."""
        return self.state is State.EMPTY and not self.pending

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may want the topic; assumed of consumers that cannot be understood."""
        if self.subscribed is None:
            return self.is_consumer
        return topic in self.subscribed

    def keeps_offsets_of(self, topic: str) -> bool:
        """Whether offsets of the topic are kept however old they are: while a member wants it, and
        while it is not known what they want."""
        is_known = self.state is State.STABLE and self.subscribed is not None
        return self.is_subscribed_to(topic) if is_known or self.is_empty else True

    def check_delete(self) -> Error:
        if self.state is State.DEAD:
            return Error.GROUP_ID_NOT_FOUND
        return Error.NONE if self.state is State.EMPTY else Error.NON_EMPTY_GROUP

    def check_delete_offsets(self) -> Error:
        """Say whether offsets can be deleted: of members that are not consumers nobody knows what
        they are subscribed to."""
        return Error.NONE if self.is_empty or self.is_consumer else Error.NON_EMPTY_GROUP

    # Joining

    def join(self, request: Join, ticket: Ticket, now: int) -> list[Effect]:
        """Somebody new joins, or a member joins again; the answer may come much later."""
        member_id = request.member_id
        if self.state is State.DEAD:
            self._refuse_join(ticket, Error.COORDINATOR_NOT_AVAILABLE, member_id)
        elif not self._has_room_for(request):
            self.pending.pop(member_id, None)
            if member_id in self.members:
                self._note(Cause.SHRUNK, member_id, now)
                self._remove(member_id)
            self._complete_join_if_all_did(now)
            self._refuse_join(ticket, Error.GROUP_MAX_SIZE_REACHED, "")
        elif not self._supports(request.protocol_type, request.protocols):
            self._refuse_join(ticket, Error.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif not member_id:
            self._join_unknown(request, ticket, now)
        elif member_id in self.pending and request.instance_id is None:
            self._add(member_id, request, ticket, now)
        else:
            error = self._check_member(member_id, request.instance_id)
            if error:
                self._refuse_join(ticket, error, member_id)
            else:
                self._join_again(self.members[member_id], request, ticket, now)
        return self._take_effects()

    def _has_room_for(self, request: Join) -> bool:
        member_id = request.member_id
        if not member_id and request.instance_id is not None:
            member_id = self.roster.by_instance.get(request.instance_id, "")
        match self.state:
            case State.EMPTY | State.DEAD:
                return True
            case State.PREPARING_REBALANCE:
                # By who has joined so far: those who are last find the group full.
                return member_id in self._joining or len(self._joining) < self.max_size
            case _:
                return member_id in self.members or len(self.members) < self.max_size

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if not self.members:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and self.roster.agrees_on(protocols)

    def _join_unknown(self, request: Join, ticket: Ticket, now: int) -> None:
        prefix = request.client_id if request.instance_id is None else request.instance_id
        new_id = f"{prefix[:_LONGEST_PREFIX]}-{self._new_id()}"
        known_id = None
        if request.instance_id is not None:
            known_id = self.roster.by_instance.get(request.instance_id)
        if known_id is not None:
            self._replace(known_id, new_id, request, ticket, now)
        elif request.instance_id is None and request.requires_member_id:
            if len(self.pending) >= _MOST_PENDING:
                del self.pending[next(iter(self.pending))]
            self.pending[new_id] = now + min(request.session_timeout_ms, _PENDING_MS)
            self._arm(self.pending[new_id])
            self._refuse_join(ticket, Error.MEMBER_ID_REQUIRED, new_id)
        else:
            self._add(new_id, request, ticket, now)

    def _add(self, member_id: str, request: Join, ticket: Ticket, now: int) -> None:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
        )
        self.pending.pop(member_id, None)
        if not self.members:
            self.protocol_type = request.protocol_type
        self._enter(member)
        self._joining[member_id] = ticket
        member.expires_at = now + NEW_MEMBER_TIMEOUT_MS
        self._arm(member.expires_at)
        self._newcomers = True
        self._note(Cause.JOINED, member_id, now)
        self._rebalance(now)

    def _join_again(self, member: Member, request: Join, ticket: Ticket, now: int) -> None:
        has_changed = member.protocols != request.protocols
        is_leader = member.id == self.leader
        if self.state is State.STABLE and is_leader and not has_changed:
            # How a leader asks for another assignment, for example because a topic has grown.
            self._note(Cause.LEADER_ASKED, member.id, now)
        elif self.state is not State.PREPARING_REBALANCE:
            if not has_changed:
                # It may not have heard the answer to its first request: it gets the same again.
                self._effects.append(Answer(ticket, self._joined(member)))
                return
            self._note(Cause.CHANGED, member.id, now)
        self._update(member, request)
        self._park_join(member.id, ticket)
        self._rebalance(now)

    def _replace(self, old_id: str, new_id: str, request: Join, ticket: Ticket, now: int) -> None:
        """A static member came back without its member id: the old one is fenced off."""
        member = self.members[old_id]
        undo = Replacement(
            old_id,
            new_id,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            old_id == self.leader,
            request.can_skip_assignment,
        )
        self._rename(member, new_id)
        self._update(member, request)
        member.is_new = False
        self._expect(member, now)
        self._park_join(new_id, ticket)
        if self.state is State.STABLE and self.roster.choose_protocol() == self.protocol:
            assignments = {each.id: each.assignment for each in self.members.values()}
            metadata = self._metadata(assignments)
            self._effects.append(StoreMetadata(Purpose.REPLACEMENT, metadata, undo))
            return
        # In the middle of a rebalance the leader may know the old id already, so it begins anew.
        self._note(Cause.RESTARTED, new_id, now)
        self._rebalance(now)

    # The rebalance

    def _rebalance(self, now: int) -> None:
        """Begin to rebalance, or go on if everybody has been heard of."""
        if self.state is State.PREPARING_REBALANCE:
            self._complete_join_if_all_did(now)
        else:
            self._prepare_rebalance(now)

    def _prepare_rebalance(self, now: int) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            self._reset_assignments(Error.REBALANCE_IN_PROGRESS, now)
        self._unsynced.clear()
        self._sync_by = NEVER
        self._is_initial = self.state is State.EMPTY
        self.state = State.PREPARING_REBALANCE
        if not self._is_initial:
            self._complete_join_if_all_did(now)
            if self.state is State.PREPARING_REBALANCE:
                self._join_by = now + self.roster.rebalance_timeout_ms
                self._arm(self._join_by)
        elif self.initial_delay_ms:
            # More members of a group that starts up are likely on their way.
            self._newcomers = False
            self._due_initially = now + self.roster.rebalance_timeout_ms
            self._join_by = min(now + self.initial_delay_ms, self._due_initially)
            self._arm(self._join_by)
        else:
            self._complete_join(now)

    def _end_initial_delay(self, now: int) -> None:
        if self._newcomers and now < self._due_initially:
            self._newcomers = False
            self._join_by = min(now + self.initial_delay_ms, self._due_initially)
        else:
            self._complete_join(now)

    def _complete_join_if_all_did(self, now: int) -> None:
        if (
            self.state is State.PREPARING_REBALANCE
            and not self._is_initial
            and not self.pending
            and len(self._joining) == len(self.members)
        ):
            self._complete_join(now)

    def _complete_join(self, now: int) -> None:
        """Begin the next generation with those who have joined, and static members."""
        for member in list(self.members.values()):
            if member.id not in self._joining and member.instance_id is None:
                self._note(Cause.LATE, member.id, now)
                self._remove(member.id)
        if self.members and not self._joining:
            # Only static members, all silent: until they come back or their sessions end.
            self._join_by = now + max(self.roster.rebalance_timeout_ms, _RETRY_MS)
            self._arm(self._join_by)
            return
        self._join_by = NEVER
        self._is_initial = False
        self.generation += 1
        if not self.members:
            self._become_empty(now)
            return
        if self.leader not in self._joining:
            self.leader = next(iter(self._joining))
        self.protocol = self.roster.choose_protocol()
        self.subscribed = self._subscribed_topics()
        self.state = State.COMPLETING_REBALANCE
        self._unsynced = set(self.members)
        self._sync_by = now + self.roster.rebalance_timeout_ms
        self._arm(self._sync_by)
        joining, self._joining = self._joining, {}
        for member in self.members.values():
            member.is_new = False
            self._expect(member, now)
            if member.id in joining:
                self._effects.append(Answer(joining[member.id], self._joined(member)))

    def _become_empty(self, now: int) -> None:
        self.protocol = None
        self.leader = None
        self.state = State.EMPTY
        self.subscribed = self._subscribed_topics()
        self._effects.append(StoreMetadata(Purpose.EMPTY, self._metadata({})))
        self._report(now)

    # Assignments

    def sync(self, request: Sync, ticket: Ticket, now: int) -> list[Effect]:
        """A member asks for its assignment; the leader brings everyone's."""
        member_id = request.member_id
        error = self._check_sync(request)
        if error:
            self._effects.append(Answer(ticket, Synced(error)))
        elif self.state is State.STABLE:
            self._has_synced(member_id)
            self._effects.append(Answer(ticket, self._synced(self.members[member_id])))
        else:
            self._has_synced(member_id)
            if member_id in self._syncing:
                earlier = Answer(self._syncing[member_id], Synced(Error.REBALANCE_IN_PROGRESS))
                self._effects.append(earlier)
            self._syncing[member_id] = ticket
            if member_id == self.leader:
                metadata = self._metadata(request.assignments or {})
                self._effects.append(StoreMetadata(Purpose.ASSIGNMENT, metadata))
        return self._take_effects()

    def _check_sync(self, request: Sync) -> Error:
        if self.state is State.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        error = self._check_member(request.member_id, request.instance_id)
        if error:
            return error
        if request.generation != self.generation:
            return Error.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (
            None,
            self.protocol,
        ):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.PREPARING_REBALANCE:
            return Error.REBALANCE_IN_PROGRESS
        return Error.NONE

    def _has_synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_by = NEVER

    def stored(self, store: StoreMetadata, error: Error, now: int) -> list[Effect]:
        """What came of a Store; by now the group may be somewhere else."""
        match store.purpose:
            case Purpose.ASSIGNMENT:
                self._assignment_stored(store.metadata, error, now)
            case Purpose.REPLACEMENT if store.replacement is not None:
                self._replacement_stored(store.replacement, error, now)
            case _:
                # An empty group that is not written down is empty all the same.
                pass
        return self._take_effects()

    def _assignment_stored(self, metadata: GroupMetadata, error: Error, now: int) -> None:
        if self.state is not State.COMPLETING_REBALANCE or metadata.generation != self.generation:
            return
        if error:
            self._reset_assignments(error, now)
            self._note(Cause.UNSTORED, metadata.leader or "", now)
            self._prepare_rebalance(now)
            return
        for stored in metadata.members:
            if stored.member_id in self.members:
                self.members[stored.member_id].assignment = stored.assignment
        self.state = State.STABLE
        syncing, self._syncing = self._syncing, {}
        for member_id, ticket in syncing.items():
            member = self.members[member_id]
            self._effects.append(Answer(ticket, self._synced(member)))
            self._expect(member, now)
        self._report(now)

    def _replacement_stored(self, made: Replacement, error: Error, now: int) -> None:
        if self.state is not State.STABLE or made.new_id not in self._joining:
            # A rebalance began meanwhile, and will be stored with the member in it.
            return
        member = self.members[made.new_id]
        ticket = self._joining.pop(member.id)
        if error:
            answer = Joined(error, "")
            self._rename(member, made.old_id)
            self.roster.set_protocols(member, made.protocols)
            member.rebalance_timeout_ms = made.rebalance_timeout_ms
            member.session_timeout_ms = made.session_timeout_ms
        elif made.was_leader and not made.can_skip_assignment:
            # An old client that hears that it leads would bring an assignment, which needs a
            # rebalance; under its former name it only asks for its own (KIP-345).
            answer = replace(self._joined(member), leader=made.old_id, members=())
        else:
            answer = replace(self._joined(member), skip_assignment=made.was_leader)
        self._effects.append(Answer(ticket, answer))
        self._expect(member, now)

    def _reset_assignments(self, error: Error, now: int) -> None:
        for member in self.members.values():
            member.assignment = b""
        syncing, self._syncing = self._syncing, {}
        for member_id, ticket in syncing.items():
            self._effects.append(Answer(ticket, Synced(error)))
            self._expect(self.members[member_id], now)

    # Being there

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: int
    ) -> Error:
        """A member lives; the error tells it to join again where it must."""
        error = self._check_generation(member_id, instance_id, generation)
        if error:
            return error
        member = self.members[member_id]
        if not member.is_new:
            member.expires_at = now + member.session_timeout_ms
        if self.state is State.PREPARING_REBALANCE:
            return Error.REBALANCE_IN_PROGRESS
        return Error.NONE

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: int
    ) -> Error:
        """Whether these may commit offsets; a member that does is alive as by a heartbeat."""
        if self.state is State.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            # Somebody who assigns partitions to himself, or an operator.
            return Error.NONE
        if generation < 0 and not member_id and instance_id is None:
            return Error.UNKNOWN_MEMBER_ID
        error = self._check_generation(member_id, instance_id, generation)
        if error:
            return error
        if self.state is State.COMPLETING_REBALANCE:
            return Error.REBALANCE_IN_PROGRESS
        member = self.members[member_id]
        if not member.is_new:
            member.expires_at = now + member.session_timeout_ms
        return Error.NONE

    def leave(self, departures: Sequence[Departure], now: int) -> tuple[list[Error], list[Effect]]:
        """Members leave; one error each, and at most one rebalance for them all."""
        errors = []
        is_smaller = False
        for member_id, instance_id in departures:
            if not member_id and instance_id is not None:
                member_id = self.roster.by_instance.get(instance_id, "")
            if self.pending.pop(member_id, None) is not None:
                errors.append(Error.NONE)
                continue
            error = self._check_member(member_id, instance_id)
            errors.append(error)
            if not error:
                self._note(Cause.LEFT, member_id, now)
                self._dismiss(member_id)
                is_smaller = True
        self._go_on_without(is_smaller, now)
        return errors, self._take_effects()

    def expire(self, now: int) -> list[Effect]:
        """Do what is due by `now`, and find out what is due next."""
        if self.state is State.DEAD:
            return []
        for member_id, good_until in list(self.pending.items()):
            if good_until <= now:
                del self.pending[member_id]
        is_smaller = False
        for member in list(self.members.values()):
            if member.expires_at <= now and self._needs_heartbeats(member):
                self._note(Cause.SILENT, member.id, now)
                self._dismiss(member.id)
                is_smaller = True
        self._go_on_without(is_smaller, now)
        if self._join_by <= now:
            if self._is_initial:
                self._end_initial_delay(now)
            else:
                self._complete_join(now)
        if self._sync_by <= now:
            for member_id in list(self._unsynced):
                self._note(Cause.UNSYNCED, member_id, now)
                self._remove(member_id)
            self._prepare_rebalance(now)
        self._find_next_deadline()
        return self._take_effects()

    def die(self, error: Error) -> list[Effect]:
        """The group ends here: everyone who waits is told so."""
        for member_id, ticket in self._joining.items():
            self._refuse_join(ticket, error, member_id)
        for ticket in self._syncing.values():
            self._effects.append(Answer(ticket, Synced(error)))
        self._joining.clear()
        self._syncing.clear()
        self.state = State.DEAD
        self.due_at = NEVER
        return self._take_effects()

    def _go_on_without(self, is_smaller: bool, now: int) -> None:
        """After members are gone (or only ids that nobody joined with): rebalance where needed."""
        if is_smaller and self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._prepare_rebalance(now)
        else:
            self._complete_join_if_all_did(now)

    def _needs_heartbeats(self, member: Member) -> bool:
        """Who waits for an answer need not be heard of, unless nobody ever knew it was there."""
        return member.is_new or (member.id not in self._joining and member.id not in self._syncing)

    def _expect(self, member: Member, now: int) -> None:
        member.expires_at = now + member.session_timeout_ms
        self._arm(member.expires_at)

    def _arm(self, at: int) -> None:
        if at < self.due_at:
            self.due_at = at

    def _find_next_deadline(self) -> None:
        deadlines = [self._join_by, self._sync_by, *self.pending.values()]
        deadlines += [
            member.expires_at for member in self.members.values() if self._needs_heartbeats(member)
        ]
        self.due_at = min(deadlines)

    # Checks

    def _check_member(self, member_id: str, instance_id: str | None) -> Error:
        if instance_id is not None:
            known_id = self.roster.by_instance.get(instance_id)
            if known_id is None:
                return Error.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self.members else Error.UNKNOWN_MEMBER_ID

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> Error:
        if self.state is State.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        error = self._check_member(member_id, instance_id)
        if not error and generation != self.generation:
            return Error.ILLEGAL_GENERATION
        return error

    # Members

    def _enter(self, member: Member) -> None:
        self.roster.enter(member)
        if self.leader is None:
            self.leader = member.id

    def _dismiss(self, member_id: str) -> None:
        """Removes a member and tells it, should it still wait for the others."""
        if member_id in self._joining:
            self._refuse_join(self._joining[member_id], Error.UNKNOWN_MEMBER_ID, "")
        if member_id in self._syncing:
            answer = Answer(self._syncing[member_id], Synced(Error.UNKNOWN_MEMBER_ID))
            self._effects.append(answer)
        self._remove(member_id)

    def _remove(self, member_id: str) -> None:
        self.roster.remove(member_id)
        self._joining.pop(member_id, None)
        self._syncing.pop(member_id, None)
        self._has_synced(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def _rename(self, member: Member, new_id: str) -> None:
        old_id = member.id
        if old_id in self._joining:
            self._refuse_join(self._joining.pop(old_id), Error.FENCED_INSTANCE_ID, old_id)
        if old_id in self._syncing:
            fenced = Synced(Error.FENCED_INSTANCE_ID)
            self._effects.append(Answer(self._syncing.pop(old_id), fenced))
        self.roster.rename(member, new_id)
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)
        if self.leader == old_id:
            self.leader = new_id

    def _update(self, member: Member, request: Join) -> None:
        self.roster.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host

    def _park_join(self, member_id: str, ticket: Ticket) -> None:
        if member_id in self._joining:
            # The client asked again, most likely on another connection: that one counts.
            earlier = self._joining[member_id]
            self._refuse_join(earlier, Error.COORDINATOR_NOT_AVAILABLE, member_id)
        self._joining[member_id] = ticket

    def _subscribed_topics(self) -> frozenset[str] | None:
        return self.roster.subscribed_topics(self.protocol) if self.is_consumer else None

    # Effects

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _refuse_join(self, ticket: Ticket, error: Error, member_id: str) -> None:
        self._effects.append(Answer(ticket, Joined(error, member_id)))

    def _joined(self, member: Member) -> Joined:
        members: tuple[JoinedMember, ...] = ()
        if member.id == self.leader and self.state is not State.PREPARING_REBALANCE:
            members = tuple(
                JoinedMember(each.id, each.instance_id, each.metadata(self.protocol))
                for each in self.members.values()
            )
        return Joined(
            Error.NONE,
            member.id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            members=members,
        )

    def _synced(self, member: Member) -> Synced:
        return Synced(Error.NONE, self.protocol_type, self.protocol, member.assignment)

    def _metadata(self, assignments: Mapping[str, bytes]) -> GroupMetadata:
        return GroupMetadata(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            -1,
            tuple(
                member.to_store(self.protocol, assignments.get(member.id, b""))
                for member in self.members.values()
            ),
        )

    def _note(self, cause: Cause, member_id: str, now: int) -> None:
        if self._reasons is None:
            self._reasons = Reasons(now)
        self._reasons.add(cause, member_id)

    def _report(self, now: int) -> None:
        reasons, self._reasons = self._reasons or Reasons(now), None
        self._effects.append(
            Rebalanced(
                self.id,
                self.generation,
                len(self.members),
                self.protocol,
                self.leader,
                now - reasons.began,
                reasons,
            )
        )
