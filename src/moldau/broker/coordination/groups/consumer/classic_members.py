"""Classic members: those of a consumer group that still use JoinGroup, SyncGroup and Heartbeat.

They are members as all others: their generation is their member epoch, and JoinGroup does what a
full heartbeat does. Where others learn of a new assignment by their heartbeat, these are told to
rejoin, and fetch it by SyncGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from moldau.broker.coordination.groups.classic.messages import Departure, Join, Joined, Sync, Synced
from moldau.broker.coordination.groups.classic.subscription import CONSUMER
from moldau.broker.coordination.groups.consumer import checks
from moldau.broker.coordination.groups.consumer.embedded import read_subscription
from moldau.broker.coordination.groups.consumer.group import ConsumerGroup
from moldau.broker.coordination.groups.consumer.messages import Refused
from moldau.broker.coordination.groups.consumer.migration import (
    assignment_for,
    ids_of,
    names_of,
)
from moldau.broker.coordination.groups.consumer.parts import (
    STRANGER,
    ClassicMetadata,
    Member,
    MemberState,
)
from moldau.broker.coordination.groups.consumer.timers import Wait
from moldau.broker.coordination.groups.consumer.topics import Topics
from moldau.broker.coordination.groups.group import Answer, Effect, Ticket
from moldau.broker.coordination.groups.report import Cause
from moldau.broker.coordination.records import InvalidRecord
from moldau.wire.errors import Error


class ClassicMembers:
    """The requests of classic members to one consumer group."""

    __slots__ = ("_group", "_state", "_timers", "_topics")

    def __init__(self, group: ConsumerGroup, topics: Topics) -> None:
        self._group = group
        self._state = group.state
        self._timers = group.timers
        self._topics = topics

    # Joining

    def join(
        self, request: Join, new_id: str, ticket: Ticket, now: int, now_ms: int
    ) -> list[Effect]:
        """Somebody joins, or joins again; it never waits for others. `new_id` is for who has no
        id."""
        group = self._group
        try:
            joined = self._join(request, new_id, now, now_ms)
        except Refused as refused:
            self._state.take_back(self._state.take_changes())
            named = new_id if refused.error is Error.MEMBER_ID_REQUIRED else ""
            return [Answer(ticket, Joined(refused.error, named))]
        effects = group.ledger.finish(
            now, ticket, joined, lambda error: Joined(error, request.member_id)
        )
        if request.instance_id is not None and all(
            member.classic is not None for member in group.members.values()
        ):
            # A static member has come back by the classic protocol, and no other uses the new one.
            limits = group.limits()
            if limits.can_downgrade and len(group.members) <= limits.classic_max_size:
                effects += group.downgrade(list(group.members), now)
        return effects

    def _join(self, request: Join, new_id: str, now: int, now_ms: int) -> Joined:
        group, state = self._group, self._state
        limits = group.limits()
        if not limits.can_upgrade and not limits.can_downgrade:
            raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL, "the group migration is disabled")
        id = request.member_id or new_id
        checks.check_room(state, id, limits.max_size)
        if not self._supports(id, request):
            raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL, "its protocols are not supported")
        is_unknown = not request.member_id
        if is_unknown and request.instance_id is None and request.requires_member_id:
            raise Refused(Error.MEMBER_ID_REQUIRED, "")
        if request.instance_id is not None:
            known_id = state.instances.get(request.instance_id)
            if not is_unknown:
                checks.check_instance(id, request.instance_id, known_id)
            elif known_id is not None:
                group.replace(known_id, id)
        try:
            subscription = read_subscription(request.protocols[0][1])
        except InvalidRecord as problem:
            raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL, str(problem)) from None
        known = state.members.get(id, STRANGER)
        member = Member(
            request.instance_id or known.instance_id,
            subscription.rack or known.rack,
            request.client_id,
            request.client_host,
            subscription.topics,
            "",
            request.rebalance_timeout_ms,
            None,
            ClassicMetadata(request.session_timeout_ms, request.protocols),
        )
        group.follow(id, member, ids_of(self._topics, subscription.owned), now, now_ms)
        self._timers.cancel(id, Wait.JOIN)
        self._timers.cancel(id, Wait.REVOKE)
        self._timers.set(id, Wait.SESSION, now + request.session_timeout_ms)
        self._timers.set(id, Wait.SYNC, now + max(0, request.rebalance_timeout_ms))
        epoch, protocol = state.current(id).epoch, request.protocols[0][0]
        return Joined(Error.NONE, id, epoch, CONSUMER, protocol)

    def _supports(self, id: str, request: Join) -> bool:
        """Return whether a protocol is supported by all other classic members, too."""
        if request.protocol_type != CONSUMER or not request.protocols:
            return False
        others = [
            member.classic
            for other, member in self._state.members.items()
            if member.classic is not None and other != id
        ]
        support = Counter(name for each in others for name in {name for name, _ in each.protocols})
        return any(support[name] == len(others) for name, _ in request.protocols)

    # Assignments, and being there

    def sync(self, request: Sync, ticket: Ticket, now: int) -> list[Effect]:
        """Give a member what it has."""
        try:
            member, classic = self._find(request.member_id, request.instance_id)
            current = self._state.current(request.member_id)
            self._check_sync(request, classic, current.epoch)
            is_behind = self._state.epoch.epoch > current.epoch
            if is_behind and current.state is not MemberState.UNREVOKED_PARTITIONS:
                self._expect_join(request.member_id, member, now)
                raise Refused(Error.REBALANCE_IN_PROGRESS, "")
        except Refused as refused:
            return [Answer(ticket, Synced(refused.error))]
        self._timers.cancel(request.member_id, Wait.SYNC)
        self._timers.set(request.member_id, Wait.SESSION, now + classic.session_timeout_ms)
        assigned = {topic: frozenset(has) for topic, has in current.assigned.items()}
        assignment = assignment_for(classic, names_of(self._topics, assigned))
        synced = Synced(Error.NONE, request.protocol_type, request.protocol, assignment)
        return self._group.ledger.finish(now, ticket, synced, Synced)

    def _check_sync(self, request: Sync, classic: ClassicMetadata, epoch: int) -> None:
        if request.generation != epoch:
            raise Refused(Error.ILLEGAL_GENERATION, "")
        protocol = classic.protocols[0][0]
        if request.protocol_type not in (None, CONSUMER) or request.protocol not in (
            None,
            protocol,
        ):
            raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL, "")

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: int
    ) -> Error:
        """Note that a member lives; the error tells it to join again where it must."""
        try:
            member, classic = self._find(member_id, instance_id)
        except Refused as refused:
            return refused.error
        current = self._state.current(member_id)
        if generation != current.epoch:
            return Error.ILLEGAL_GENERATION
        self._timers.set(member_id, Wait.SESSION, now + classic.session_timeout_ms)
        waits = current.state is MemberState.UNRELEASED_PARTITIONS
        if (
            current.epoch < self._state.epoch.epoch
            or current.state is MemberState.UNREVOKED_PARTITIONS
            or (waits and not self._group.machine.waits_for_others(member_id))
        ):
            self._expect_join(member_id, member, now)
            return Error.REBALANCE_IN_PROGRESS
        return Error.NONE

    def leave(self, departures: Sequence[Departure], now: int) -> tuple[list[Error], list[Effect]]:
        """Members leave; one error each, and at most one new assignment for them all."""
        errors, gone = [], {}
        for given_id, instance_id in departures:
            id = given_id
            if instance_id is not None and not given_id:
                id = self._state.instances.get(instance_id, "")
            try:
                self._find(id, instance_id)
            except Refused as refused:
                errors.append(refused.error)
            else:
                errors.append(Error.NONE)
                gone[id] = Cause.LEFT
        return errors, self._group.remove(gone, now) if gone else []

    def _find(self, member_id: str, instance_id: str | None) -> tuple[Member, ClassicMetadata]:
        if instance_id is not None:
            checks.check_instance(member_id, instance_id, self._state.instances.get(instance_id))
        checks.check_member(self._group.id, self._state, member_id)
        member = self._state.members[member_id]
        if member.classic is None:
            message = f"Member {member_id} does not use the classic protocol."
            raise Refused(Error.UNKNOWN_MEMBER_ID, message)
        return member, member.classic

    def _expect_join(self, member_id: str, member: Member, now: int) -> None:
        at = now + max(0, member.rebalance_timeout_ms)
        self._timers.set_if_absent(member_id, Wait.JOIN, at)
