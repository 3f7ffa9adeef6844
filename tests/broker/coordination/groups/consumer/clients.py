"""Clients of both protocols, as far as a coordinator can tell them from real ones."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from moldau.broker.coordination.groups.classic.messages import Departure, Join, Joined, Sync, Synced
from moldau.broker.coordination.groups.consumer.embedded import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from moldau.broker.coordination.groups.consumer.group import ConsumerGroup
from moldau.broker.coordination.groups.consumer.messages import HeartbeatAnswer
from moldau.wire.errors import Error
from moldau.wire.primitives import INT16, INT32, count, string
from tests.broker.coordination.groups.consumer.playing import (
    REBALANCE_MS,
    SESSION_MS,
    Table,
    Ticket,
)

Place = tuple[UUID, int]


def by_topic(places: set[Place]) -> dict[UUID, frozenset[int]]:
    found: dict[UUID, frozenset[int]] = {}
    for topic, partition in places:
        found[topic] = found.get(topic, frozenset()) | {partition}
    return found


class Consumer:
    """A consumer of the new protocol. `has` is what it reads; it may be slow to stop reading."""

    def __init__(self, table: Table, id: str, topics: frozenset[str], instance: str | None) -> None:
        self.table = table
        self.id = id
        self.topics = topics
        self.instance = instance
        self.epoch = 0
        self.has: set[Place] = set()
        self.to_revoke: set[Place] = set()

    def beat(self, *, loses: bool = False, says_all: bool = True) -> None:
        ticket = Ticket(None if loses else self._hear)
        joins = self.epoch == 0
        more: dict[str, Any] = {}
        if joins or says_all:
            more["rebalance_timeout_ms"] = REBALANCE_MS
            more["topics"] = self.topics
            more["owned"] = by_topic(self.has)
        self.table.beat(self.id, self.epoch, ticket=ticket, instance_id=self.instance, **more)

    def _hear(self, answer: HeartbeatAnswer) -> None:
        if answer.error in (Error.COORDINATOR_NOT_AVAILABLE, Error.UNRELEASED_INSTANCE_ID):
            return
        if answer.error:
            self.epoch, self.has, self.to_revoke = 0, set(), set()
            return
        self.epoch = answer.epoch
        if answer.assignment is not None:
            told = {(topic, each) for topic, has in answer.assignment.items() for each in has}
            self.to_revoke = self.has - told
            self.has |= told

    def revoke(self) -> None:
        self.has -= self.to_revoke
        self.to_revoke = set()

    def leave(self, *, for_now: bool = False) -> None:
        self.table.beat(self.id, -2 if for_now else -1, instance_id=self.instance)
        self.epoch, self.has, self.to_revoke = 0, set(), set()


class ClassicConsumer:
    """A consumer of the classic protocol, with the cooperative manner of rebalancing."""

    def __init__(self, table: Table, topics: frozenset[str]) -> None:
        self.table = table
        self.id = ""
        self.topics = topics
        self.epoch = -1
        self.has: set[Place] = set()
        self.is_waiting = False
        self.must_join = True

    def _subscription(self) -> bytes:
        out = INT16.pack(1) + count(len(self.topics), False)
        out += b"".join(string(topic, False) for topic in sorted(self.topics)) + INT32.pack(-1)
        owned = {
            name: sorted(each for topic, each in self.has if topic == view.id)
            for name, view in self.table.topics.found.items()
        }
        out += count(len(owned), False)
        for name, partitions in owned.items():
            out += string(name, False) + count(len(partitions), False)
            out += b"".join(map(INT32.pack, partitions))
        return out

    def beat(self) -> None:
        if self.is_waiting:
            return
        if self.must_join:
            self._join()
            return
        error = self.table.members.heartbeat(self.id, None, self.epoch, self.table.now)
        if error is Error.REBALANCE_IN_PROGRESS:
            self._join()
        elif error:
            self._begin_anew(error)

    def _begin_anew(self, error: Error) -> None:
        self.has = set()
        self.must_join = True
        if error in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID):
            self.id = ""

    def _join(self) -> None:
        self.is_waiting, self.must_join = True, True
        protocols = (("cooperative-sticky", self._subscription()),)
        request = Join(self.id, "consumer", protocols, SESSION_MS, REBALANCE_MS)
        self.table.classic_join(request, Ticket(self._joined))

    def _joined(self, answer: Joined) -> None:
        self.is_waiting = False
        if answer.error is Error.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            self._join()
        elif answer.error is Error.REBALANCE_IN_PROGRESS:
            return
        elif answer.error:
            self._begin_anew(answer.error)
        else:
            self.id, self.epoch, self.must_join = answer.member_id, answer.generation, False
            self._sync(answer)

    def _sync(self, joined: Joined) -> None:
        self.is_waiting = True
        assignments = self._assign(joined) if joined.leader == self.id else None
        request = Sync(self.id, self.epoch, None, "consumer", joined.protocol, assignments)
        ticket = Ticket(self._synced)
        self.table.see_to(self.table.members.sync(request, ticket, self.table.now))

    def _assign(self, joined: Joined) -> dict[str, bytes]:
        """Divide partitions as a leader does, but give nobody what another still has."""
        wants = {each.member_id: read_subscription(each.metadata) for each in joined.members}
        given: dict[str, dict[str, frozenset[int]]] = {id: {} for id in wants}
        for name, view in self.table.topics.found.items():
            readers = [id for id in wants if name in wants[id].topics]
            for partition in range(view.partitions):
                owner = next(
                    (id for id in wants if partition in wants[id].owned.get(name, ())), None
                )
                to = readers[partition % len(readers)] if readers else None
                if to is not None and owner in (None, to):
                    given[to][name] = given[to].get(name, frozenset()) | {partition}
        return {id: write_assignment(partitions, 1) for id, partitions in given.items()}

    def _synced(self, answer: Synced) -> None:
        self.is_waiting = False
        if answer.error is Error.REBALANCE_IN_PROGRESS:
            self.must_join = True
        elif answer.error:
            self._begin_anew(answer.error)
        else:
            told = set()
            for name, partitions in read_assignment(answer.assignment).items():
                view = self.table.topics.get(name)
                if view is not None:
                    told |= {(view.id, each) for each in partitions}
            self.must_join = bool(self.has - told)
            self.has = told

    def leave(self) -> None:
        if self.id:
            _, effects = self.table.members.leave([Departure(self.id)], self.table.now)
            self.table.see_to(effects)
        self.id, self.has, self.must_join, self.is_waiting = "", set(), True, False


def settle(table: Table, clients: list[Consumer | ClassicConsumer], rounds: int = 40) -> None:
    """Let everybody do what it has to until nothing changes any more."""
    for _ in range(rounds):
        written = len(table.log)
        for client in clients:
            if isinstance(client, Consumer):
                client.revoke()
            client.beat()
        table.turn(1_000)
        group = table.group
        # Those who died without a word are members until their sessions end.
        are_there = {client.id for client in clients}
        is_stable = (
            isinstance(group, ConsumerGroup)
            and group.state_name in ("Stable", "Empty")
            and group.members.keys() == are_there
        )
        if is_stable and len(table.log) == written:
            return


def spread(random: Random, names: list[str]) -> frozenset[str]:
    return frozenset(name for name in names if random.random() < 0.7) or frozenset(names[:1])
