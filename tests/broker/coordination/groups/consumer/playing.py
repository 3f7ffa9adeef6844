"""A group on a table: clients of both protocols, a clock that is turned by hand, a log that a crash
can cut off anywhere, and answers that get lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from moldau.broker.coordination.groups.assignors.range import RangeAssignor
from moldau.broker.coordination.groups.assignors.uniform import UniformAssignor
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.consumer.classic_members import ClassicMembers
from moldau.broker.coordination.groups.consumer.group import ConsumerGroup
from moldau.broker.coordination.groups.consumer.membership import joined_instead
from moldau.broker.coordination.groups.consumer.messages import (
    Heartbeat,
    HeartbeatAnswer,
    Limits,
    Refused,
    SteadyBeat,
)
from moldau.broker.coordination.groups.consumer.parts import ResolvedRegex
from moldau.broker.coordination.groups.consumer.regexes import matching
from moldau.broker.coordination.groups.consumer.topics import TopicView
from moldau.broker.coordination.groups.group import (
    Answer,
    Become,
    Effect,
    Group,
    Resolve,
    Store,
)
from moldau.broker.coordination.groups.records import GroupKey, KindKey, read_key
from moldau.broker.coordination.groups.report import Rebalanced
from moldau.broker.coordination.records import KeyValue
from moldau.wire.errors import Error

SESSION_MS, REBALANCE_MS = 45_000, 30_000


class TableTopics:
    """Topics that come, grow and go."""

    def __init__(self) -> None:
        self.version = 0
        self.found: dict[str, TopicView] = {}
        self._numbers = itertools.count(1)

    def create(self, name: str, partitions: int) -> UUID:
        number = next(self._numbers)
        self.found[name] = TopicView(UUID(int=number << 64 | number * 7), partitions)
        self.version += 1
        return self.found[name].id

    def grow(self, name: str, by: int) -> None:
        topic = self.found[name]
        self.found[name] = topic._replace(partitions=topic.partitions + by)
        self.version += 1

    def delete(self, name: str) -> None:
        del self.found[name]
        self.version += 1

    def get(self, name: str) -> TopicView | None:
        return self.found.get(name)

    def racks_of(self, name: str) -> tuple[tuple[str, ...], ...]:
        return ()

    def name_of(self, id: UUID) -> str | None:
        return next((name for name, topic in self.found.items() if topic.id == id), None)


class Ticket:
    """Somebody who waits; a client hears its answer, unless that got lost."""

    def __init__(self, hear: Callable[[Any], None] | None = None) -> None:
        self.body: Any = None
        self._hear = hear

    def answer(self, body: Any) -> None:
        assert self.body is None, "answered twice"
        self.body = body
        if self._hear is not None:
            self._hear(body)

    def lose(self) -> None:
        self._hear = None


class Crash(Exception):
    """The coordinator died in the middle of a write."""


class Table:
    """One group with its log."""

    def __init__(self, **limits: Any) -> None:
        self.now = 1_000
        self.topics = TableTopics()
        assignors = {each.name: each for each in (UniformAssignor(), RangeAssignor())}
        self.limits = Limits(SESSION_MS, 5_000, 0, 1 << 30, assignors, 1 << 30, 600_000)._replace(
            **limits
        )
        self._ids = itertools.count(1)
        self.group: Group = self.new_consumer("g")
        self.log: list[KeyValue] = []
        self.reports: list[Rebalanced] = []
        # Of the next write this many records reach the log before the crash; -1 for no crash.
        self.crash_after = -1
        self.refuses_next = False
        self.waiting: list[Ticket] = []
        self.steady_beats = 0

    def new_consumer(self, id: str) -> ConsumerGroup:
        return ConsumerGroup(
            id, topics=self.topics, limits=lambda: self.limits, new_classic=self.new_classic
        )

    def new_classic(self, id: str) -> ClassicGroup:
        return ClassicGroup(id, new_id=lambda: f"{next(self._ids)}")

    @property
    def consumer(self) -> ConsumerGroup:
        assert isinstance(self.group, ConsumerGroup)
        return self.group

    @property
    def members(self) -> ClassicGroup | ClassicMembers:
        if isinstance(self.group, ConsumerGroup):
            return ClassicMembers(self.group, self.topics)
        assert isinstance(self.group, ClassicGroup)
        return self.group

    # Requests

    def beat(self, member: str, epoch: int, *, ticket: Ticket | None = None, **more: Any) -> Any:
        """A heartbeat and its answer."""
        request = Heartbeat(member, epoch, now_ms=self.now, **more)
        ticket = ticket or Ticket()
        if isinstance(self.group, ConsumerGroup):
            steady, written = self._steady(self.group, request), len(self.log)
            self.see_to(self.group.heartbeat(request, ticket, self.now))
            # Whoever is answered the short way would have been answered so the long way.
            assert steady is None or (steady, written) == (ticket.body, len(self.log))
        elif epoch == 0:
            classic = self.group
            assert isinstance(classic, ClassicGroup)
            group = self.new_consumer("g")
            group.ledger.take_the_place_of(classic, classic.tombstones())
            try:
                effects = joined_instead(
                    group, classic, self.topics, request, ticket, self.now, None
                )
            except Refused as refused:
                ticket.answer(HeartbeatAnswer(refused.error))
                return ticket.body
            if any(isinstance(effect, Store) for effect in effects):
                self.group = group
            self.see_to(effects)
        else:
            ticket.answer(HeartbeatAnswer(Error.GROUP_ID_NOT_FOUND))
        return ticket.body

    def _steady(self, group: ConsumerGroup, request: Heartbeat) -> HeartbeatAnswer | None:
        news = (request.rack, request.topics, request.regex, request.assignor, request.owned)
        if request.epoch <= 0 or request.rebalance_timeout_ms != -1 or news != (None,) * 5:
            return None
        beat = SteadyBeat(
            request.member_id,
            request.epoch,
            request.instance_id,
            request.client_id,
            request.client_host,
        )
        found = group.steady(beat, self.now)
        self.steady_beats += found is not None
        return found

    def join(self, member: str, topics: frozenset[str], **more: Any) -> Any:
        return self.beat(
            member, 0, topics=topics, owned={}, rebalance_timeout_ms=REBALANCE_MS, **more
        )

    def classic_join(self, request: Any, ticket: Ticket) -> None:
        if isinstance(self.group, ConsumerGroup) and not self.group.members:
            self.log += self.group.tombstones()
            self.group = self.new_classic("g")
        if isinstance(self.group, ConsumerGroup):
            members = ClassicMembers(self.group, self.topics)
            new_id = f"c-{next(self._ids)}"
            self.see_to(members.join(request, new_id, ticket, self.now, self.now))
        else:
            assert isinstance(self.group, ClassicGroup)
            self.see_to(self.group.join(request, ticket, self.now))

    def turn(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms
        if self.group.due_at <= self.now:
            self.see_to(self.group.expire(self.now))

    # What the coordinator does

    def see_to(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(ticket, body):
                    ticket.answer(body)
                case Store():
                    self._store(effect)
                case Become(group):
                    self.group = group
                case Resolve(regexes):
                    self._resolve(regexes)
                case Rebalanced():
                    self.reports.append(effect)

    def _store(self, store: Store) -> None:
        records = store.records("g", self.now)
        if self.refuses_next and records:
            self.refuses_next = False
            store.take_back()
            if store.replaced is not None:
                self.group = store.replaced
            self.see_to(store.settled(self.group, Error.COORDINATOR_NOT_AVAILABLE, self.now))
            return
        if records and self.crash_after >= 0:
            self.log += records[: self.crash_after]
            raise Crash
        self.log += records
        self.see_to(store.settled(self.group, Error.NONE, self.now))

    def _resolve(self, regexes: frozenset[str]) -> None:
        found = matching(regexes, list(self.topics.found))
        assert isinstance(self.group, ConsumerGroup)
        resolved = {
            regex: ResolvedRegex(names, self.topics.version, self.now)
            for regex, names in found.items()
        }
        self.see_to(self.group.resolved(resolved, self.now))

    def reload(self) -> None:
        """Another coordinator reads the log."""
        self.crash_after = -1
        latest = dict(self.log)
        group: Group = self.new_consumer("g")
        for key, value in latest.items():
            what = read_key(key)
            if value is None or what is None:
                continue
            if isinstance(what, GroupKey) and not isinstance(group, ClassicGroup):
                group = self.new_classic("g")
            elif isinstance(what, KindKey) and not isinstance(group, ConsumerGroup):
                group = self.new_consumer("g")
            group.replay(key, value)
        self.group = group
        self.see_to(group.resume(self.now))


def maybe(random: Random, chance: float) -> bool:
    return random.random() < chance
