"""A group of many members on one thread: connections of their own, no client library.

Members learn of a rebalance from the answer to a heartbeat. These send one as soon as something has
changed, so that what is measured is the coordinator's work and not the heartbeat interval.
"""

from __future__ import annotations

import asyncio
import time
from struct import Struct
from typing import Any

from moldau.bench.errors import BenchFailed
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import RebalanceGroup, Rebalances
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request

TIMEOUT_S = 60
_TIMEOUT_MS = TIMEOUT_S * 1000
_CLIENT_ID = "bench"
# Roughly the versions that librdkafka 2.x sends; all of their responses have flexible headers.
_VERSIONS = {Api.JOIN_GROUP: 6, Api.SYNC_GROUP: 4, Api.HEARTBEAT: 4, Api.LEAVE_GROUP: 4}
_SIZE = Struct(">i")
_PROTOCOL = "range"


class Member:
    """One connection with one request in flight, doing as the coordinator says."""

    def __init__(
        self, group: Group, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._group = group
        self._reader = reader
        self._writer = writer
        self.id = ""
        self.generation = -1
        self.assignment = b""

    async def introduce(self) -> None:
        """Be given an id (KIP-394); the group knows nothing of the member yet."""
        answer = await self._join_once()
        if answer.error_code != Error.MEMBER_ID_REQUIRED:
            raise BenchFailed(f"a first JoinGroup was answered with error {answer.error_code}")
        self.id = answer.member_id

    async def join(self) -> None:
        """Join until there is an assignment for this generation."""
        while True:
            joined = await self._join_once()
            _expect(joined.error_code, "JoinGroup")
            self.generation = joined.generation_id
            assignments: list[dict[str, Any]] = []
            if joined.leader == self.id:
                members = [member.member_id for member in joined.members]
                self._group.sizes[self.generation] = len(members)
                assignments = [
                    {"member_id": member, "assignment": self._group.assignment(partition)}
                    for partition, member in enumerate(members)
                ]
            synced = await self._ask(Api.SYNC_GROUP, {**self._place(), "assignments": assignments})
            if synced.error_code != Error.REBALANCE_IN_PROGRESS:
                _expect(synced.error_code, "SyncGroup")
                self.assignment = bytes(synced.assignment)
                return

    async def join_group_of(self, size: int) -> None:
        """Join, and again whenever others do, until the group is as large as this."""
        await self.join()
        while self._group.sizes[self.generation] < size:
            await self.rejoin()

    async def rejoin(self) -> None:
        """Notice that a rebalance is on, and take part in it."""
        while True:
            answer = await self._ask(Api.HEARTBEAT, self._place())
            if answer.error_code == Error.REBALANCE_IN_PROGRESS:
                break
            _expect(answer.error_code, "Heartbeat")
        await self.join()

    async def leave(self, *others: Member) -> None:
        """Leave, and have others leave too."""
        leavers = [{"member_id": member.id} for member in (self, *others)]
        values = {"group_id": self._group.id, "members": leavers}
        answer = await self._ask(Api.LEAVE_GROUP, values)
        _expect(answer.error_code, "LeaveGroup")

    def close(self) -> None:
        self._writer.close()

    def _place(self) -> dict[str, Any]:
        return {
            "group_id": self._group.id,
            "member_id": self.id,
            "generation_id": self.generation,
        }

    async def _join_once(self) -> Any:
        return await self._ask(
            Api.JOIN_GROUP,
            {
                "group_id": self._group.id,
                "session_timeout": _TIMEOUT_MS,
                "rebalance_timeout": _TIMEOUT_MS,
                "member_id": self.id,
                "protocol_type": "consumer",
                "protocols": [{"name": _PROTOCOL, "metadata": self._group.subscription}],
            },
        )

    async def _ask(self, api: Api, values: dict[str, Any]) -> Any:
        version = _VERSIONS[api]
        body = encode_request(api, version, values)
        self._writer.write(request_frame(api, version, 1, _CLIENT_ID, body))
        (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
        frame = await self._reader.readexactly(size)
        # Correlation id, tags.
        return decode_response(api, version, memoryview(frame)[4 + 1 :])


class Group:
    """Members that all live here, so that each knows how large a generation is."""

    def __init__(self, task: RebalanceGroup) -> None:
        self.id = task.group
        self._address = task.host, task.port
        topic = task.topic.encode()
        self._topic = Struct(">hih").pack(0, 1, len(topic)) + topic
        self._no_user_data = _SIZE.pack(-1)
        self.subscription = self._topic + self._no_user_data
        self.sizes: dict[int, int] = {}
        self.members: list[Member] = []

    def assignment(self, partition: int) -> bytes:
        """Return a member's share in the clients' own format: one partition of the topic."""
        return self._topic + Struct(">ii").pack(1, partition) + self._no_user_data

    async def connect(self) -> Member:
        return Member(self, *await asyncio.open_connection(*self._address))

    async def form(self, size: int) -> float:
        """Seconds in which members that are all new become one group."""
        newcomers = [await self.connect() for _ in range(size)]
        started = time.monotonic()
        await asyncio.gather(*(self._arrive(member, size) for member in newcomers))
        self.members = newcomers
        return self._took(started)

    async def grow(self) -> float:
        """Seconds from a newcomer's first request until everyone has a new assignment."""
        newcomer = await self.connect()
        started = time.monotonic()
        await newcomer.introduce()
        await asyncio.gather(newcomer.join(), *(member.rejoin() for member in self.members))
        self.members.append(newcomer)
        return self._took(started)

    async def shrink(self) -> float:
        """Seconds from a member's farewell until all others have a new assignment."""
        leaver = self.members.pop()
        started = time.monotonic()
        await leaver.leave()
        await asyncio.gather(*(member.rejoin() for member in self.members))
        took = self._took(started)
        leaver.close()
        return took

    async def disband(self) -> None:
        first, *others = self.members
        await first.leave(*others)
        for member in self.members:
            member.close()

    async def _arrive(self, member: Member, size: int) -> None:
        await member.introduce()
        await member.join_group_of(size)

    def _took(self, started: float) -> float:
        took = time.monotonic() - started
        generations = {member.generation for member in self.members}
        assignments = {member.assignment for member in self.members}
        if len(generations) != 1 or len(assignments) != len(self.members):
            raise BenchFailed(
                f"{len(self.members)} members have {len(assignments)} assignments of generations "
                f"{sorted(generations)}"
            )
        return took


def rebalance_group(task: RebalanceGroup) -> Rebalances:
    return asyncio.run(asyncio.wait_for(_rebalance(task), TIMEOUT_S * (1 + task.rounds)))


async def _rebalance(task: RebalanceGroup) -> Rebalances:
    await _warm_up(task)
    group = Group(task)
    formed_s = await group.form(task.members)
    generations = group.members[0].generation
    broker_cpu, load_cpu = cpu_seconds(task.broker_pid), time.process_time()
    joined_s: list[float] = []
    left_s: list[float] = []
    for _ in range(task.rounds):
        joined_s.append(await group.grow())
        left_s.append(await group.shrink())
    broker_cpu = cpu_seconds(task.broker_pid) - broker_cpu
    load_cpu = time.process_time() - load_cpu
    await group.disband()
    return Rebalances(formed_s, generations, joined_s, left_s, broker_cpu, load_cpu)


async def _warm_up(task: RebalanceGroup) -> None:
    """Have the schemas loaded, here and in the broker, by another group."""
    group = Group(task)
    group.id = f"{task.group}-warm-up"
    await group.form(2)
    await group.grow()
    await group.shrink()
    await group.disband()


def _expect(code: int, request: str) -> None:
    if code != Error.NONE:
        raise BenchFailed(f"{request} was answered with error {code}")
