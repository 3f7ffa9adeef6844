"""The classic group: what its members ask of it, and who is refused what.

`generations` has the state machine; here requests are checked and brought to it. What is in
subscriptions and assignments is the clients' affair, so any assignor works, eager or cooperative,
and so do groups that are not consumers. Whoever asks with an older generation, or under the
instance id of a static member that restarted since (KIP-345), is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.groups.classic import views
from moldau.broker.coordination.groups.classic.generations import Generations, State
from moldau.broker.coordination.groups.classic.kept import KeptGroup
from moldau.broker.coordination.groups.classic.member import Member
from moldau.broker.coordination.groups.classic.messages import Departure, Join, Joined, Sync, Synced
from moldau.broker.coordination.groups.classic.static import Replacement
from moldau.broker.coordination.groups.classic.store import Purpose, StoreMetadata
from moldau.broker.coordination.groups.group import CLASSIC, Commit, Effect, Ticket
from moldau.broker.coordination.groups.report import Cause
from moldau.wire.errors import Error

# Member ids are made of names that clients choose, and must fit a string of the protocol.
_LONGEST_PREFIX = 255


class ClassicGroup(KeptGroup):
    """A group whose members rebalance by JoinGroup and SyncGroup; a `Group`, as its coordinator
    knows it. No I/O and no clock, and nobody is waited for.

    A call takes `now`, in milliseconds of a clock that only goes forward, and returns the effects
    that the caller has to see to, in order. Once `due_at` has come the caller calls `expire`; a
    heartbeat only moves its member's own deadline, which `expire` finds out later.

    Tickets stand for requests that are not answered yet; each is handed back once, in an Answer.
    """

    kind = CLASSIC
    expires = True

    __slots__ = (
        "_new_id",
        "members",
        "pending",
    )

    def __init__(
        self,
        id: str,
        *,
        new_id: Callable[[], str],
        initial_delay_ms: int = 0,
        max_size: int = NEVER,
    ) -> None:
        super().__init__(id, Generations(id, initial_delay_ms), max_size)
        self._new_id = new_id
        self.members = self.roster.members
        self.pending = self._generations.pending

    # What is known of it

    @property
    def state(self) -> State:
        return self._generations.state

    @property
    def state_name(self) -> str:
        return self._generations.state.value

    @property
    def generation(self) -> int:
        return self._generations.number

    @property
    def leader(self) -> str | None:
        return self.roster.leader

    @property
    def protocol_type(self) -> str | None:
        return self.roster.protocol_type

    @property
    def protocol(self) -> str | None:
        return self.roster.protocol

    @property
    def due_at(self) -> int:
        return self._generations.due_at

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_dead(self) -> bool:
        return self.state is State.DEAD

    @property
    def is_forgettable(self) -> bool:
        """Whether nobody is in the group or on the way into it."""
        return self.state is State.EMPTY and not self.pending

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member may want the topic; assumed of consumers that cannot be
        understood."""
        subscribed = self._generations.subscribed
        return self.roster.is_consumer if subscribed is None else topic in subscribed

    def keeps_offsets_of(self, topic: str) -> bool:
        """Return whether offsets of the topic are kept however old they are: while a member wants
        it, and while it is not known what they want."""
        is_known = self.state is State.STABLE and self._generations.subscribed is not None
        return self.is_subscribed_to(topic) if is_known or self.is_empty else True

    # Joining

    def join(self, request: Join, ticket: Ticket, now: int) -> list[Effect]:
        """Somebody new joins, or a member joins again; the answer may come much later."""
        member_id = request.member_id
        if self.state is State.DEAD:
            self._waiting.refuse_join(ticket, Error.COORDINATOR_NOT_AVAILABLE, member_id)
        elif not self._has_room_for(request):
            self.pending.take(member_id)
            if member_id in self.members:
                self._generations.note(Cause.SHRUNK, member_id, now)
                self._generations.remove(member_id)
            self._generations.complete_join_if_all_did(now)
            self._waiting.refuse_join(ticket, Error.GROUP_MAX_SIZE_REACHED, "")
        elif not self.roster.supports(request.protocol_type, request.protocols):
            self._waiting.refuse_join(ticket, Error.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif not member_id:
            self._join_unknown(request, ticket, now)
        elif member_id in self.pending and request.instance_id is None:
            self._add(member_id, request, ticket, now)
        else:
            error = self.roster.check(member_id, request.instance_id)
            if error:
                self._waiting.refuse_join(ticket, error, member_id)
            else:
                self._join_again(self.members[member_id], request, ticket, now)
        return self._generations.take_effects()

    def _has_room_for(self, request: Join) -> bool:
        member_id = self.roster.find(request.member_id, request.instance_id)
        match self.state:
            case State.EMPTY | State.DEAD:
                return True
            case State.PREPARING_REBALANCE:
                # Counted by who has joined so far: the last ones find the group full.
                joining = self._waiting.joining
                return member_id in joining or len(joining) < self.max_size
            case _:
                return member_id in self.members or len(self.members) < self.max_size

    def _join_unknown(self, request: Join, ticket: Ticket, now: int) -> None:
        prefix = request.client_id if request.instance_id is None else request.instance_id
        new_id = f"{prefix[:_LONGEST_PREFIX]}-{self._new_id()}"
        known_id = self.roster.find("", request.instance_id)
        if known_id:
            self._replace(known_id, new_id, request, ticket, now)
        elif request.instance_id is None and request.requires_member_id:
            good_until = self.pending.give_out(new_id, request.session_timeout_ms, now)
            self._generations.arm(good_until)
            self._waiting.refuse_join(ticket, Error.MEMBER_ID_REQUIRED, new_id)
        else:
            self._add(new_id, request, ticket, now)

    def _add(self, member_id: str, request: Join, ticket: Ticket, now: int) -> None:
        if not self.members:
            self.roster.protocol_type = request.protocol_type
        self._generations.enter(Member.new(member_id, request), ticket, now)

    def _join_again(self, member: Member, request: Join, ticket: Ticket, now: int) -> None:
        has_changed = member.protocols != request.protocols
        is_leader = member.id == self.leader
        if self.state is State.STABLE and is_leader and not has_changed:
            # How a leader asks for another assignment, for example because a topic has grown.
            self._generations.note(Cause.LEADER_ASKED, member.id, now)
        elif self.state is not State.PREPARING_REBALANCE:
            if not has_changed:
                # It may not have heard the answer to its first request: it gets the same again.
                self._waiting.answer(ticket, self._generations.joined(member))
                return
            self._generations.note(Cause.CHANGED, member.id, now)
        self.roster.update(member, request)
        self._waiting.park_join(member.id, ticket)
        self._generations.rebalance(now)

    def _replace(self, old_id: str, new_id: str, request: Join, ticket: Ticket, now: int) -> None:
        """A static member came back without its member id: the old one is fenced off."""
        member = self.members[old_id]
        undo = Replacement.of(
            member,
            new_id,
            is_leader=old_id == self.leader,
            can_skip=request.can_skip_assignment,
        )
        self._generations.rename(member, new_id)
        self.roster.update(member, request)
        member.is_new = False
        self._generations.expect(member, now)
        self._waiting.park_join(new_id, ticket)
        if self.state is State.STABLE and self.roster.choose_protocol() == self.protocol:
            assignments = {each.id: each.assignment for each in self.members.values()}
            self._store(Purpose.REPLACEMENT, assignments, undo)
            return
        # In the middle of a rebalance the leader may already know the old id, so it starts again.
        self._generations.note(Cause.RESTARTED, new_id, now)
        self._generations.rebalance(now)

    # Assignments

    def sync(self, request: Sync, ticket: Ticket, now: int) -> list[Effect]:
        """Give a member its assignment; the leader brings everyone's."""
        member_id = request.member_id
        error = self._check_sync(request)
        if error:
            self._waiting.answer(ticket, Synced(error))
        elif self.state is State.STABLE:
            self._generations.has_synced(member_id)
            self._waiting.answer(ticket, views.synced(self.roster, self.members[member_id]))
        else:
            self._generations.has_synced(member_id)
            self._waiting.park_sync(member_id, ticket)
            if member_id == self.leader:
                self._store(Purpose.ASSIGNMENT, request.assignments or {})
        return self._generations.take_effects()

    def _check_sync(self, request: Sync) -> Error:
        error = self._check_generation(request.member_id, request.instance_id, request.generation)
        if error:
            return error
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (
            None,
            self.protocol,
        ):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.PREPARING_REBALANCE:
            return Error.REBALANCE_IN_PROGRESS
        return Error.NONE

    def _store(
        self, purpose: Purpose, assignments: dict[str, bytes], undo: Replacement | None = None
    ) -> None:
        metadata = views.metadata(self.roster, self.generation, assignments)
        self._generations.effects.append(StoreMetadata(purpose, metadata, undo))

    def stored(self, store: StoreMetadata, error: Error, now: int) -> list[Effect]:
        """Go on after a write; by now the group may be somewhere else."""
        match store.purpose:
            case Purpose.ASSIGNMENT:
                self._generations.assigned(store.metadata, error, now)
            case Purpose.REPLACEMENT if store.replacement is not None:
                self._replacement_stored(store.replacement, error, now)
            case _:
                # An empty group that is not written down is empty all the same.
                pass
        return self._generations.take_effects()

    def _replacement_stored(self, made: Replacement, error: Error, now: int) -> None:
        if self.state is not State.STABLE or made.new_id not in self._waiting.joining:
            # A rebalance has begun in the meantime, and will be stored with the member in it.
            return
        member = self.members[made.new_id]
        ticket = self._waiting.joining.pop(member.id)
        if error:
            answer = Joined(error, "")
            self._generations.rename(member, made.old_id)
            made.undo(member, self.roster)
        else:
            answer = made.answer(self._generations.joined(member))
        self._waiting.answer(ticket, answer)
        self._generations.expect(member, now)

    # Being there

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: int
    ) -> Error:
        """Note that a member lives; the error tells it to join again where it must."""
        error = self._check_generation(member_id, instance_id, generation)
        if error:
            return error
        self.members[member_id].heard(now)
        if self.state is State.PREPARING_REBALANCE:
            return Error.REBALANCE_IN_PROGRESS
        return Error.NONE

    def check_commit(self, commit: Commit, now: int) -> Error:
        """Say whether offsets may be committed so; a member that does is alive as by a
        heartbeat."""
        member_id, instance_id, generation = commit[:3]
        if self.state is State.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        if commit.is_transactional and generation < 0 and not member_id and instance_id is None:
            # Who says nothing of a member may commit beside members (KIP-447).
            return Error.NONE
        if generation < 0 and self.state is State.EMPTY:
            # A consumer that assigns partitions to itself, or an operator.
            return Error.NONE
        if generation < 0 and not member_id and instance_id is None:
            return Error.UNKNOWN_MEMBER_ID
        error = self._check_generation(member_id, instance_id, generation)
        if error:
            return error
        if self.state is State.COMPLETING_REBALANCE and not commit.is_transactional:
            return Error.REBALANCE_IN_PROGRESS
        self.members[member_id].heard(now)
        return Error.NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> Error:
        """Whoever may read the offsets at all may read them at any time."""
        return Error.NONE

    def leave(self, departures: Sequence[Departure], now: int) -> tuple[list[Error], list[Effect]]:
        """Members leave; one error each, and at most one rebalance for them all."""
        errors = []
        is_smaller = False
        for given_id, instance_id in departures:
            member_id = self.roster.find(given_id, instance_id)
            if self.pending.take(member_id):
                errors.append(Error.NONE)
                continue
            error = self.roster.check(member_id, instance_id)
            errors.append(error)
            if not error:
                self._generations.note(Cause.LEFT, member_id, now)
                self._generations.dismiss(member_id)
                is_smaller = True
        self._generations.go_on_without(is_smaller, now)
        return errors, self._generations.take_effects()

    def expire(self, now: int) -> list[Effect]:
        """Do what is due by `now`, and find out what is due next."""
        self._generations.expire(now)
        return self._generations.take_effects()

    def die(self, error: Error) -> list[Effect]:
        """End here: everyone who waits is told so."""
        self._generations.die(error)
        return self._generations.take_effects()

    # Checks

    def check_delete(self) -> Error:
        """Say whether the group can be deleted."""
        if self.state is State.DEAD:
            return Error.GROUP_ID_NOT_FOUND
        return Error.NONE if self.state is State.EMPTY else Error.NON_EMPTY_GROUP

    def check_delete_offsets(self) -> Error:
        """Say whether offsets can be deleted: of members that are not consumers nobody knows what
        they are subscribed to."""
        is_known = self.is_empty or self.roster.is_consumer
        return Error.NONE if is_known else Error.NON_EMPTY_GROUP

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> Error:
        generations = self._generations
        if generations.state is State.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        error = self.roster.check(member_id, instance_id)
        if not error and generation != generations.number:
            return Error.ILLEGAL_GENERATION
        return error
