"""The consumer group: what its members ask of it, and who is refused what.

`machine` has the state machine; here heartbeats are checked and brought to it, silent members are
removed, and whoever waits is answered once what it is told is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.consumer import checks
from moldau.broker.coordination.groups.consumer.ledger import Ledger
from moldau.broker.coordination.groups.consumer.machine import GroupStatus, Machine, UnknownState
from moldau.broker.coordination.groups.consumer.messages import (
    JOINS,
    LEAVES_FOR_NOW,
    Heartbeat,
    HeartbeatAnswer,
    Limits,
    Refused,
    SteadyBeat,
)
from moldau.broker.coordination.groups.consumer.migration import downgraded
from moldau.broker.coordination.groups.consumer.parts import (
    STRANGER,
    Current,
    Member,
    MemberState,
    Part,
    ResolvedRegex,
)
from moldau.broker.coordination.groups.consumer.records import read_record, record
from moldau.broker.coordination.groups.consumer.regexes import RegexRefresh
from moldau.broker.coordination.groups.consumer.store import StoreParts
from moldau.broker.coordination.groups.consumer.timers import Timers, Wait
from moldau.broker.coordination.groups.consumer.topics import Topics
from moldau.broker.coordination.groups.group import (
    CONSUMER,
    Answer,
    Become,
    Commit,
    Effect,
    Resolve,
    Ticket,
)
from moldau.broker.coordination.groups.report import Cause
from moldau.broker.coordination.records import KeyValue
from moldau.wire.errors import Error


class ConsumerGroup:
    """A group whose members follow the coordinator's assignment; a `Group`, as its coordinator
    knows it. No I/O and no clock: calls take `now`, and return the effects to be seen to."""

    kind = CONSUMER
    expires = True
    protocol_type = "consumer"

    __slots__ = (
        "_finished_at",
        "_is_dead",
        "_is_unfinished",
        "_new_classic",
        "_regexes",
        "_topics",
        "id",
        "ledger",
        "limits",
        "machine",
        "members",
        "state",
        "timers",
    )

    def __init__(
        self,
        id: str,
        *,
        topics: Topics,
        limits: Callable[[], Limits],
        new_classic: Callable[[str], ClassicGroup],
    ) -> None:
        self.id = id
        self.limits = limits
        self.machine = Machine(topics, lambda: limits().assignors)
        self.state = self.machine.state
        self.members = self.state.members
        self.timers = Timers()
        self.ledger = Ledger(self.machine, id)
        self._topics = topics
        self._new_classic = new_classic
        self._regexes = RegexRefresh()
        self._is_dead = False
        # Whether the log ended in the middle of a change, and when that was seen to.
        self._is_unfinished = False
        self._finished_at = -1

    # What is known of it

    @property
    def status(self) -> GroupStatus:
        return GroupStatus.DEAD if self._is_dead else self.machine.status

    @property
    def state_name(self) -> str:
        return self.status.value

    @property
    def due_at(self) -> int:
        return NEVER if self._is_dead else self.timers.due_at

    @property
    def is_empty(self) -> bool:
        return not self.members and not self._is_dead

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    @property
    def is_forgettable(self) -> bool:
        return self.is_empty

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.state.topic_users or any(
            topic in self.state.regexes[regex].topics
            for regex in self.state.regex_users
            if regex in self.state.regexes
        )

    def keeps_offsets_of(self, topic: str) -> bool:
        return self.is_subscribed_to(topic)

    # The log

    def replay(self, key: bytes, value: bytes) -> None:
        """Take in a record of the group."""
        found = read_record(key, value)
        if found is not None:
            self.state.put(*found)

    def resume(self, now: int) -> list[Effect]:
        """Go on from what was replayed: members have a session timeout to be heard of."""
        state = self.state
        for part, names in ((Part.TARGET, state.targets), (Part.CURRENT, state.currents)):
            # Of a member whose removal, or arrival, was not written to its end.
            for name in [name for name in names if name not in self.members]:
                state.put(part, name, None)
        state.take_changes()
        self._is_unfinished = checks.is_unfinished(state, self._topics)
        for id in self.members:
            self.watch(id, now)
        return []

    def tombstones(self) -> list[KeyValue]:
        return [record(self.id, part, name, None) for part, name in self.state.parts()]

    # Heartbeats

    def heartbeat(
        self, request: Heartbeat, ticket: Ticket, now: int, context: Any = None
    ) -> list[Effect]:
        """Hear a member that joins, lives or leaves; `context` is what it may see."""

        def refuse(error: Error) -> HeartbeatAnswer:
            return HeartbeatAnswer(error)

        try:
            if request.epoch < JOINS:
                return self._leave(request, ticket, refuse, now)
            answer = self._beat(request, now)
        except Refused as refused:
            self.state.take_back(self.state.take_changes())
            return [Answer(ticket, HeartbeatAnswer(refused.error, refused.message))]
        effects = self.ledger.finish(now, ticket, answer, refuse)
        if not self.state.regex_users:
            return effects
        wanted = self._regexes.due(self.state, self._topics, request.now_ms, self.limits())
        return [*effects, Resolve(wanted, context)] if wanted else effects

    def steady(self, beat: SteadyBeat, now: int) -> HeartbeatAnswer | None:
        """Answer a member that has what it shall have and says nothing new, as `heartbeat` would,
        which changes nothing then; None if something may be to be done."""
        state, id, epoch = self.state, beat.member_id, beat.epoch
        current, member = state.currents.get(id), self.members.get(id)
        if (
            member is None
            or current is None
            or current.epoch != epoch
            or current.state is not MemberState.STABLE
            or state.target_epoch.epoch != epoch
            or state.epoch.epoch != epoch
            or member.classic is not None
            or (member.client_id, member.client_host) != (beat.client_id, beat.client_host)
            or (beat.instance_id is not None and beat.instance_id != member.instance_id)
            or state.regex_users
            or self._is_dead
            or self._finishes
            or not self.machine.is_up_to_date
        ):
            return None
        limits = self.limits()
        self.timers.set(id, Wait.SESSION, now + limits.session_timeout_ms)
        return HeartbeatAnswer(Error.NONE, None, id, epoch, limits.heartbeat_interval_ms)

    @property
    def _finishes(self) -> bool:
        """Whether a change that the log has half of is still to be finished."""
        return self._is_unfinished and self._finished_at != self.state.taken_back

    def _beat(self, request: Heartbeat, now: int) -> HeartbeatAnswer:
        limits = self.limits()
        checks.check_room(self.state, request.member_id, limits.max_size)
        if request.instance_id is None:
            id = checks.find_dynamic(self.id, self.state, request)
        else:
            id = self._find_static(request, request.instance_id)
        before = self.state.current(id)
        member = request.changed(self.members.get(id, STRANGER))
        try:
            self.follow(id, member, request.owned, now, request.now_ms)
        except UnknownState:
            raise Refused(
                Error.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its "
                "partitions and rejoin.",
            ) from None
        self.timers.set(id, Wait.SESSION, now + limits.session_timeout_ms)
        after = self.state.current(id)
        is_told = request.epoch == JOINS or request.is_full or before.assigned != after.assigned
        return HeartbeatAnswer(
            Error.NONE,
            None,
            id,
            after.epoch,
            # Who joins while a target is too new would have nothing until its next heartbeat.
            min(
                self.machine.waits_ms(limits.assignment_interval_ms, request.now_ms) or NEVER,
                limits.heartbeat_interval_ms,
            ),
            {t: frozenset(has) for t, has in after.assigned.items()} if is_told else None,
        )

    def _find_static(self, request: Heartbeat, instance_id: str) -> str:
        known_id = self.state.instances.get(instance_id)
        if request.epoch != JOINS:
            checks.check_instance(request.member_id, instance_id, known_id)
            return checks.find_dynamic(self.id, self.state, request)
        if known_id is not None and known_id != request.member_id:
            checks.check_released(self.state, known_id, request.member_id, instance_id)
            self.replace(known_id, request.member_id)
        return request.member_id

    def replace(self, old_id: str, new_id: str) -> None:
        """A static member comes back under another member id."""
        self.machine.replace(old_id, new_id)

    def follow(self, id: str, member: Member, owned: Any, now: int, now_ms: int) -> None:
        """Bring a member, and what it says, to the state machine."""
        machine, is_new = self.machine, id not in self.members
        if is_new:
            # Of an earlier life.
            self.timers.forget(id)
        known = self.members.get(id, STRANGER)
        before = self.state.current(id)
        resubscribed = (known.topics, known.regex) != (member.topics, member.regex)
        finishes = self._finishes
        matters = machine.enroll(id, member) or finishes
        if machine.catch_up(matters):
            cause = Cause.RESUBSCRIBED if matters else Cause.TOPICS_CHANGED
            self.ledger.note(Cause.JOINED if is_new else cause, id, now)
        machine.assign(self.limits().assignment_interval_ms, now_ms)
        machine.reconcile(id, owned, resubscribed=resubscribed)
        # Only now: whoever is refused above has changed nothing.
        self._finished_at = self.state.taken_back
        self._watch_revocation(id, before, now)

    def _watch_revocation(self, id: str, before: Current, now: int) -> None:
        current, member = self.state.current(id), self.members[id]
        if current == before or member.classic is not None:
            return
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            self.timers.set(id, Wait.REVOKE, now + max(0, member.rebalance_timeout_ms))
        else:
            self.timers.cancel(id, Wait.REVOKE)

    def watch(self, id: str, now: int) -> None:
        """Expect a member to be heard of, that was read back or taken over."""
        member = self.members[id]
        timeout_ms = self.limits().session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.timers.set(id, Wait.SESSION, now + timeout_ms)
        if member.classic is None:
            self._watch_revocation(id, Current(-1), now)

    def resolved(self, found: dict[str, ResolvedRegex] | None, now: int) -> list[Effect]:
        """The topics of regular expressions were looked up, or (None) could not be."""
        self._regexes.done()
        if found is None or self._is_dead:
            return []
        if self.machine.resolve(found):
            for regex in found:
                self.ledger.note(Cause.MATCHED, regex, now)
        return self.ledger.finish(now)

    # Going

    def _leave(
        self, request: Heartbeat, ticket: Ticket, refuse: Callable[[Error], Any], now: int
    ) -> list[Effect]:
        id = checks.find_leaving(self.id, self.state, request)
        answer = HeartbeatAnswer(Error.NONE, None, id, request.epoch)
        if request.epoch == LEAVES_FOR_NOW:
            self.machine.leave_for_now(id)
            self.timers.cancel(id, Wait.REVOKE)
            return self.ledger.finish(now, ticket, answer, refuse)
        return self.remove({id: Cause.LEFT}, now, ticket, answer, refuse)

    def remove(
        self,
        gone: dict[str, Cause],
        now: int,
        ticket: Ticket | None = None,
        answer: Any = None,
        refuse: Callable[[Error], Any] | None = None,
    ) -> list[Effect]:
        """Members are gone; if only such of the classic protocol are left, so is the group."""
        limits = self.limits()
        left = [id for id in self.members if id not in gone]
        is_classic = all(self.members[id].classic is not None for id in left)
        if left and is_classic and limits.can_downgrade and len(left) <= limits.classic_max_size:
            return self.downgrade(left, now, ticket, answer, refuse)
        for id, cause in gone.items():
            self.ledger.note(cause, id, now)
        self.machine.fence(gone)
        return self.ledger.finish(now, ticket, answer, refuse)

    def downgrade(
        self,
        left: Sequence[str],
        now: int,
        ticket: Ticket | None = None,
        answer: Any = None,
        refuse: Callable[[Error], Any] | None = None,
    ) -> list[Effect]:
        """Become a classic group of those who are left, who rejoin then."""
        classic = self._new_classic(self.id)
        value, effects = downgraded(self.state, classic, left, self._topics, now)
        others = [*self.tombstones(), value]
        store = StoreParts(self.state, ticket, answer, refuse, others=others, replaced=self)
        return [Become(classic), store, *effects]

    def expire(self, now: int) -> list[Effect]:
        """Remove members whose time is up."""
        if self._is_dead:
            return []
        causes = {
            Wait.SESSION: Cause.SILENT,
            Wait.REVOKE: Cause.STUCK,
            Wait.JOIN: Cause.LATE,
            Wait.SYNC: Cause.UNSYNCED,
        }
        expired = self.timers.expire(now)
        gone = {id: causes[wait] for id, wait in expired.items() if id in self.members}
        for id in expired.keys() - gone.keys():
            # Its removal was written, and cannot be taken back any more.
            self.timers.forget(id)
        return self.remove(gone, now) if gone else []

    def die(self, error: Error) -> list[Effect]:
        self._is_dead = True
        return []

    # Checks

    def check_commit(self, commit: Commit, now: int) -> Error:
        """Say whether offsets may be committed so (KIP-1251)."""
        if self._is_dead:
            return Error.COORDINATOR_NOT_AVAILABLE
        return checks.check_commit(self.state, self._topics, commit)

    def check_fetch(self, member_id: str | None, epoch: int) -> Error:
        return checks.check_fetch(self.state, member_id, epoch)

    def check_delete(self) -> Error:
        if self._is_dead:
            return Error.GROUP_ID_NOT_FOUND
        return Error.NON_EMPTY_GROUP if self.members else Error.NONE

    def check_delete_offsets(self) -> Error:
        return Error.NONE

    def stored(self, store: Any, error: Error, now: int) -> list[Effect]:
        """Nothing: who waits for a write is told by the write itself."""
        return []
