"""Membership of consumer groups: brings heartbeats to groups, and makes groups of either kind."""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from moldau.broker.coordination.groups.assignors.assignor import Assignor
from moldau.broker.coordination.groups.assignors.range import RangeAssignor
from moldau.broker.coordination.groups.assignors.uniform import UniformAssignor
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.classic.messages import Join, Joined
from moldau.broker.coordination.groups.consumer.classic_members import ClassicMembers
from moldau.broker.coordination.groups.consumer.cluster_topics import ClusterTopics
from moldau.broker.coordination.groups.consumer.group import ConsumerGroup
from moldau.broker.coordination.groups.consumer.messages import (
    JOINS,
    Heartbeat,
    HeartbeatAnswer,
    Limits,
    Refused,
    SteadyBeat,
)
from moldau.broker.coordination.groups.consumer.migration import check_upgrade, upgrade
from moldau.broker.coordination.groups.consumer.parts import ResolvedRegex
from moldau.broker.coordination.groups.consumer.regexes import matching
from moldau.broker.coordination.groups.consumer.topics import Topics
from moldau.broker.coordination.groups.group import Effect, Resolve, Store, Ticket
from moldau.broker.coordination.groups.held import HeldGroup, HeldGroups
from moldau.broker.coordination.groups.limits import GroupLimits
from moldau.broker.coordination.groups.report import Cause
from moldau.broker.coordination.host import Host
from moldau.broker.coordination.shards import Shards
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.group_config import group_config
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.groups")

# Whether who sent a heartbeat may know of a topic.
MayDescribe = Callable[[str], bool]

_ASSIGNORS: dict[str, Assignor] = {each.name: each for each in (UniformAssignor(), RangeAssignor())}


class ConsumerMembership:
    """The consumer groups of a broker. Event loop only.

    `carry_out` sees to what a group wants done; `now` is the clock of groups.
    """

    def __init__(
        self,
        host: Host,
        new_classic: Callable[[str], ClassicGroup],
        carry_out: Callable[[HeldGroup, list[Effect]], None],
        now: Callable[[], int],
    ) -> None:
        self._host = host
        self._new_classic = new_classic
        self._carry_out = carry_out
        self._now = now
        self.topics = ClusterTopics(host.state)
        self._limits = GroupLimits(host, _limits)

    def new_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            topics=self.topics,
            limits=lambda: self._limits.get(group_id),
            new_classic=self._new_classic,
        )

    def steady(
        self, shards: Shards[HeldGroups], group_id: str, beat: SteadyBeat
    ) -> HeartbeatAnswer | None:
        """Answer a member that only lives, if there is nothing to be done or to wait for."""
        groups = shards.find(group_id)
        held = None if isinstance(groups, Error) else groups.by_id.get(group_id)
        if held is None or not held.journal.is_settled:
            return None
        group = held.group
        return group.steady(beat, self._now()) if isinstance(group, ConsumerGroup) else None

    def heartbeat(
        self,
        shards: Shards[HeldGroups],
        group_id: str,
        request: Heartbeat,
        may_describe: MayDescribe,
    ) -> asyncio.Future[HeartbeatAnswer]:
        """Answered once what the member is told is on every in-sync replica."""
        answer: asyncio.Future[HeartbeatAnswer] = self._host.loop.create_future()
        groups = shards.find(group_id)
        if isinstance(groups, Error):
            answer.set_result(HeartbeatAnswer(groups))
            return answer
        try:
            self._hear(groups, group_id, request, answer, may_describe)
        except Refused as refused:
            answer.set_result(HeartbeatAnswer(refused.error, refused.message))
        return answer

    def _hear(
        self,
        groups: HeldGroups,
        group_id: str,
        request: Heartbeat,
        answer: asyncio.Future[HeartbeatAnswer],
        may_describe: MayDescribe,
    ) -> None:
        joins, now = request.epoch == JOINS, self._now()
        held = groups.by_id.get(group_id)
        if held is None and not joins:
            noun = "Group" if request.epoch < JOINS else "Consumer group"
            raise Refused(Error.GROUP_ID_NOT_FOUND, f"{noun} {group_id} not found.")
        if held is None:
            held = groups.get_or_create(group_id, ConsumerGroup.kind)
        group = held.group
        if isinstance(group, ConsumerGroup):
            self._carry_out(held, group.heartbeat(request, answer, now, may_describe))
        elif joins and isinstance(group, ClassicGroup):
            self._convert(held, group, request, answer, may_describe)
        else:
            raise Refused(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def _convert(
        self,
        held: HeldGroup,
        classic: ClassicGroup,
        request: Heartbeat,
        answer: asyncio.Future[HeartbeatAnswer],
        may_describe: MayDescribe,
    ) -> None:
        """Put a consumer group in the place of a classic one that somebody joins."""
        group = self.new_group(held.group.id)
        tombstones = classic.tombstones() if held.is_stored else []
        group.ledger.take_the_place_of(classic, tombstones)
        effects = joined_instead(
            group, classic, self.topics, request, answer, self._now(), may_describe
        )
        if any(isinstance(effect, Store) for effect in effects):
            held.group = group
        self._carry_out(held, effects)

    # The classic protocol in consumer groups

    def classic(self, group: ConsumerGroup) -> ClassicMembers:
        return ClassicMembers(group, self.topics)

    def join_classic(
        self, held: HeldGroup, group: ConsumerGroup, request: Join, answer: asyncio.Future[Joined]
    ) -> None:
        new_id = new_member_id()
        now_ms = self._host.now_ms()
        effects = self.classic(group).join(request, new_id, answer, self._now(), now_ms)
        self._carry_out(held, effects)

    # Regular expressions

    def resolve(self, held: HeldGroup, wanted: Resolve) -> None:
        """Look up on a thread which topics match."""
        group = held.group
        # It is a classic group again if the write that made it a consumer group was refused.
        if isinstance(group, ConsumerGroup):
            self._host.spawn(self._resolve(held, group, wanted))

    async def _resolve(self, held: HeldGroup, group: ConsumerGroup, wanted: Resolve) -> None:
        state = self._host.state
        version, found = state.version, None
        try:
            matched = await asyncio.to_thread(matching, wanted.regexes, list(state.topics))
            may_describe: Any = wanted.context
            found = {
                regex: ResolvedRegex(
                    frozenset(name for name in names if may_describe(name)),
                    version,
                    self._host.now_ms(),
                )
                for regex, names in matched.items()
            }
        except Exception:
            logger.exception("group %r: looking up regular expressions failed", group.id)
        if held.group is group:
            self._carry_out(held, group.resolved(found, self._now()))


def joined_instead(
    group: ConsumerGroup,
    classic: ClassicGroup,
    topics: Topics,
    request: Heartbeat,
    ticket: Ticket,
    now: int,
    context: Any,
) -> list[Effect]:
    """Have somebody join a consumer group that takes the place of a classic one, with its members.
    If the effects have nothing to be written, it was refused, and the classic group stays."""
    if not classic.is_empty:
        check_upgrade(classic, group.limits())
        upgrade(group.state, classic, topics)
        for id in group.members:
            group.watch(id, now)
        group.ledger.note(Cause.CONVERTED, request.member_id, now)
    effects = group.heartbeat(request, ticket, now, context)
    if any(isinstance(effect, Store) for effect in effects):
        effects += classic.give_up()
    return effects


def new_member_id() -> str:
    """Return a member id as Kafka makes them: a UUID in base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _limits(own: Mapping[str, str], settings: BrokerSettings) -> Limits:
    config = group_config(own, settings)
    policy = settings.group_consumer_migration_policy
    return Limits(
        config.consumer_session_timeout_ms,
        config.consumer_heartbeat_interval_ms,
        config.consumer_assignment_interval_ms,
        settings.group_consumer_max_size,
        {name: _ASSIGNORS[name] for name in settings.group_consumer_assignors or _ASSIGNORS},
        settings.group_max_size,
        settings.group_consumer_regex_refresh_interval_ms,
        policy in ("bidirectional", "upgrade"),
        policy in ("bidirectional", "downgrade"),
    )
