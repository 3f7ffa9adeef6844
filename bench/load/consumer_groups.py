"""Members of consumer groups (KIP-848) on one thread: raw heartbeats, no client library."""

from __future__ import annotations

import asyncio
import time
from struct import Struct
from typing import Any
from uuid import UUID

import uvloop

from bench.tasks import ConsumerRebalances, RebalanceConsumerGroup
from moldau.bench.errors import BenchFailed
from moldau.bench.proc import cpu_seconds
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request

TIMEOUT_S = 120.0
CLIENT_ID = "bench"
SIZE = Struct(">i")
_VERSION = 1
_REBALANCE_TIMEOUT_MS = 60_000
_PASSING = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)
Place = tuple[UUID, int]
Owned = frozenset[Place]


class Ledger:
    """How long partitions belonged to nobody after their owners gave them up."""

    def __init__(self) -> None:
        self._given_up: dict[Place, tuple[Member, float]] = {}
        self.unowned_s: list[float] = []
        # The longest that somebody was without a partition that it was given back.
        self.stood_still_s = 0.0

    def clear(self) -> None:
        self._given_up.clear()
        self.unowned_s.clear()
        self.stood_still_s = 0.0

    def change(self, member: Member, lost: Owned, gained: Owned) -> None:
        now = time.monotonic()
        for place in lost:
            self._given_up[place] = member, now
        for place in gained:
            if place in self._given_up:
                owner, since = self._given_up.pop(place)
                if owner is member:
                    self.stood_still_s = max(self.stood_still_s, now - since)
                else:
                    self.unowned_s.append(now - since)


class Member:
    """One member, which does at once what the coordinator says."""

    def __init__(self, group: str, name: str, topic: str, ledger: Ledger) -> None:
        self.id = name
        self.epoch = 0
        self.owned: Owned = frozenset()
        # Whether the coordinator waits for word of what is owned.
        self.is_told = False
        self._ledger = ledger
        self._group = group
        self._topic = topic
        self._idle: tuple[int, bytes] = (-1, b"")

    def request(self) -> bytes:
        """Return the next heartbeat: all of it to join, what it owns if that is news."""
        values: dict[str, Any] = {
            "group_id": self._group,
            "member_id": self.id,
            "member_epoch": self.epoch,
            "rebalance_timeout": -1,
        }
        if self.epoch == 0:
            values |= {
                "rebalance_timeout": _REBALANCE_TIMEOUT_MS,
                "subscribed_topic_names": [self._topic],
                "topic_partitions": [],
            }
        elif self.is_told:
            values["topic_partitions"] = self._reported()
        elif self._idle[0] == self.epoch:
            return self._idle[1]
        else:
            self._idle = self.epoch, self._frame(values)
            return self._idle[1]
        return self._frame(values)

    def farewell(self) -> bytes:
        values = {"group_id": self._group, "member_id": self.id, "member_epoch": -1}
        return self._frame({**values, "rebalance_timeout": -1})

    def hear(self, answer: bytes) -> None:
        told = decode_response(Api.CONSUMER_GROUP_HEARTBEAT, _VERSION, memoryview(answer)[4 + 1 :])
        code = int(told.error_code)
        if code in _PASSING and self.epoch == 0:
            return
        if code:
            raise BenchFailed(f"{self.id} was told {told}")
        self.epoch = int(told.member_epoch)
        self.is_told = told.assignment is not None
        if told.assignment is not None:
            owned = frozenset(
                (topic.topic_id, int(index))
                for topic in told.assignment.topic_partitions
                for index in topic.partitions
            )
            self._ledger.change(self, self.owned - owned, owned - self.owned)
            self.owned = owned

    def _reported(self) -> list[dict[str, Any]]:
        topics: dict[UUID, list[int]] = {}
        for topic, index in self.owned:
            topics.setdefault(topic, []).append(index)
        return [{"topic_id": topic, "partitions": some} for topic, some in topics.items()]

    def _frame(self, values: dict[str, Any]) -> bytes:
        body = encode_request(Api.CONSUMER_GROUP_HEARTBEAT, _VERSION, values)
        return request_frame(Api.CONSUMER_GROUP_HEARTBEAT, _VERSION, 1, CLIENT_ID, body)


class Link:
    """A connection that takes requests and returns their answers in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, *requests: bytes) -> list[bytes]:
        """Send all requests at once, and return the answers without their sizes."""
        self._writer.write(b"".join(requests))
        found = []
        for _ in requests:
            (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
            found.append(await self._reader.readexactly(size))
        return found

    def close(self) -> None:
        self._writer.close()


async def connect(host: str, port: int) -> Link:
    return Link(*await asyncio.open_connection(host, port))


def is_settled(members: list[Member], partitions: int) -> bool:
    """Return whether all partitions are owned, evenly, and nobody has news.

    The same epoch for all is not enough: brokers put assignments off while many members join.
    """
    if len({member.epoch for member in members}) != 1 or members[0].epoch == 0:
        return False
    sizes = [len(member.owned) for member in members]
    if max(sizes) - min(sizes) > 1:
        return False
    owned = [place for member in members for place in member.owned]
    if len(owned) != len(set(owned)):
        raise BenchFailed("a partition has two owners")
    return len(owned) == partitions and not any(member.is_told for member in members)


class Group:
    """Members with a connection each, all of which beat again as soon as all are answered."""

    def __init__(self, task: RebalanceConsumerGroup, name: str) -> None:
        self._task = task
        self._name = name
        self._count = 0
        self.members: dict[Member, Link] = {}
        self.ledger = Ledger()

    async def add(self) -> Member:
        self._count += 1
        member = Member(self._name, f"member-{self._count}", self._task.topic, self.ledger)
        self.members[member] = await connect(self._task.host, self._task.port)
        return member

    async def settle(self, after: int) -> None:
        """Beat until all own what they should in an epoch after that."""
        while not (
            is_settled(list(self.members), self._task.partitions)
            and next(iter(self.members)).epoch > after
        ):
            await asyncio.gather(*(self._beat(*each) for each in self.members.items()))

    async def grow(self) -> float:
        epoch = max(member.epoch for member in self.members)
        newcomer = await self.add()
        started = time.monotonic()
        await self._beat(newcomer, self.members[newcomer])
        await self.settle(epoch)
        return time.monotonic() - started

    async def shrink(self) -> float:
        leaver = next(reversed(self.members))
        link = self.members.pop(leaver)
        epoch = max(member.epoch for member in self.members)
        started = time.monotonic()
        await link.ask(leaver.farewell())
        await self.settle(epoch)
        took = time.monotonic() - started
        link.close()
        return took

    async def disband(self) -> None:
        for member, link in self.members.items():
            await link.ask(member.farewell())
            link.close()

    async def _beat(self, member: Member, link: Link) -> None:
        (answer,) = await link.ask(member.request())
        member.hear(answer)


def rebalance_consumer_group(task: RebalanceConsumerGroup) -> ConsumerRebalances:
    limit = TIMEOUT_S * (1 + task.rounds)
    return uvloop.run(asyncio.wait_for(_rebalance(task), limit))


async def _rebalance(task: RebalanceConsumerGroup) -> ConsumerRebalances:
    await _warm_up(task)
    group = Group(task, task.group)
    for _ in range(task.members):
        await group.add()
    started = time.monotonic()
    await group.settle(0)
    formed_s = time.monotonic() - started
    group.ledger.clear()
    broker_cpu = cpu_seconds(task.broker_pid)
    joined_s: list[float] = []
    left_s: list[float] = []
    for _ in range(task.rounds):
        joined_s.append(await group.grow())
        left_s.append(await group.shrink())
    broker_cpu = cpu_seconds(task.broker_pid) - broker_cpu
    await group.disband()
    seen = group.ledger
    return ConsumerRebalances(
        formed_s, joined_s, left_s, seen.stood_still_s, seen.unowned_s, broker_cpu
    )


async def _warm_up(task: RebalanceConsumerGroup) -> None:
    """Have the schemas loaded, here and in the broker, by another group."""
    group = Group(task, f"{task.group}-warm-up")
    await group.add()
    await group.settle(0)
    await group.grow()
    await group.shrink()
    await group.disband()
