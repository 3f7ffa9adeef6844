"""Many consumer groups (KIP-848) at once: their heartbeats and their commits, prebuilt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import uvloop

from bench.load.consumer_groups import (
    CLIENT_ID,
    TIMEOUT_S,
    Ledger,
    Link,
    Member,
    connect,
    is_settled,
)
from bench.tasks import GroupFlows, ManyConsumerGroups
from moldau.bench.errors import BenchFailed
from moldau.bench.frames import COMMIT_VERSION, commit_error
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import RequestFlow
from moldau.wire.apis import Api
from moldau.wire.headers import request_frame
from moldau.wire.messages import encode_request

_OFFSET = 1000


class Group:
    """Members on one connection."""

    def __init__(self, task: ManyConsumerGroups, name: str, link: Link) -> None:
        self._task = task
        self.link = link
        self._name = name
        ledger = Ledger()
        self._members = [Member(name, f"m-{n}", task.topic, ledger) for n in range(task.members)]

    async def form(self) -> None:
        """Beat until each member owns what it should."""
        # One is there first, so that the group exists.
        members = self._members[:1]
        while not (len(members) == self._task.members and is_settled(members, self._partitions)):
            answers = await self.link.ask(*(member.request() for member in members))
            for member, answer in zip(members, answers, strict=True):
                member.hear(answer)
            if members[0].epoch:
                members = self._members

    @property
    def _partitions(self) -> int:
        # As many as members.
        return self._task.members

    def heartbeats(self) -> list[bytes]:
        return [member.request() for member in self._members]

    def commits(self) -> list[bytes]:
        return [self._commit(member) for member in self._members]

    def hear(self, answers: Sequence[bytes]) -> None:
        for member, answer in zip(self._members, answers, strict=True):
            member.hear(answer)

    def _commit(self, member: Member) -> bytes:
        ((_, index),) = member.owned
        partition: dict[str, Any] = {"partition_index": index, "committed_metadata": ""}
        values = {
            "group_id": self._name,
            "generation_id_or_member_epoch": member.epoch,
            "member_id": member.id,
            "topics": [
                {
                    "name": self._task.topic,
                    "partitions": [{**partition, "committed_offset": _OFFSET}],
                }
            ],
        }
        body = encode_request(Api.OFFSET_COMMIT, COMMIT_VERSION, values)
        return request_frame(Api.OFFSET_COMMIT, COMMIT_VERSION, 1, CLIENT_ID, body)


def many_consumer_groups(task: ManyConsumerGroups) -> GroupFlows:
    return uvloop.run(asyncio.wait_for(_run(task), 5 * TIMEOUT_S))


async def _run(task: ManyConsumerGroups) -> GroupFlows:
    groups = [
        Group(task, f"{task.group}-{n}", await connect(task.host, task.port))
        for n in range(task.groups)
    ]
    broker_cpu, started = cpu_seconds(task.broker_pid), time.monotonic()
    shares = [groups[n :: task.at_once] for n in range(task.at_once)]

    async def form(some: list[Group]) -> None:
        for group in some:
            await group.form()

    await asyncio.gather(*map(form, shares))
    formed_s = time.monotonic() - started
    formed_cpu_s = cpu_seconds(task.broker_pid) - broker_cpu
    beats = [[(group, group.heartbeats()) for group in some] for some in shares]
    heartbeats = await _repeat(task, beats)
    commits = await _repeat(task, [[(group, group.commits()) for group in some] for some in shares])
    # Nobody was fenced meanwhile, and nothing is refused.
    for group in groups:
        group.hear(await group.link.ask(*group.heartbeats()))
        for answer in await group.link.ask(*group.commits()):
            code = commit_error(bytes(4) + answer)
            if code:
                raise BenchFailed(f"a commit was answered with error {code}")
        group.link.close()
    return GroupFlows(formed_s, formed_cpu_s, heartbeats, commits)


async def _repeat(
    task: ManyConsumerGroups, shares: list[list[tuple[Group, list[bytes]]]]
) -> RequestFlow:
    """Have every group send its requests in turn: for a while to warm up, then for as long."""
    sent = 0
    until = time.monotonic() + task.seconds

    async def work(some: list[tuple[Group, list[bytes]]]) -> None:
        nonlocal sent
        while some:
            for group, requests in some:
                if time.monotonic() >= until:
                    return
                answers = await group.link.ask(*requests)
                # Not in one expression: others count while this one waits.
                sent += len(answers)

    await asyncio.gather(*map(work, shares))
    before, until = sent, time.monotonic() + task.seconds
    broker_cpu, started = cpu_seconds(task.broker_pid), time.monotonic()
    await asyncio.gather(*map(work, shares))
    return RequestFlow(
        requests=sent - before,
        total_requests=sent,
        seconds=time.monotonic() - started,
        broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
    )
