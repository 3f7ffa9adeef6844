"""A large group and many groups on one broker, with other work going on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.coordination.groups.swarm import Line, Member
from tests.broker.wire_client import make_batch

PATIENCE_S = 60


async def topic_id(line: Line, name: str) -> Any:
    answer = await line.ask(Api.METADATA, topics=[{"name": name, "topic_id": None}])
    return answer.topics[0].topic_id


async def produce(line: Line, id: Any) -> int:
    """Writes one message and reads it back; its offset."""
    partition = {"index": 0, "records": bytes(make_batch(b"value"))}
    answer = await line.ask(
        Api.PRODUCE,
        transactional_id=None,
        acks=-1,
        timeout=5_000,
        topic_data=[{"topic_id": id, "partition_data": [partition]}],
    )
    offset = int(answer.responses[0].partition_responses[0].base_offset)
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    answer = await line.ask(
        Api.FETCH,
        max_wait=5_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic_id": id, "partitions": [wanted]}],
        rack_id="",
    )
    assert answer.responses[0].partitions[0].records
    return offset


async def keep_producing(line: Line, id: Any, is_over: asyncio.Event) -> int:
    written = 0
    while not is_over.is_set():
        written = await asyncio.wait_for(produce(line, id), 60) + 1
    return written


async def stabilize(members: list[Member]) -> None:
    """Each member heartbeats and joins for itself, until all are in the same generation."""

    def is_settled() -> bool:
        shares = {int(member.assignment) for member in members if member.assignment}
        in_step = len({member.generation for member in members}) == 1
        return in_step and shares == set(range(len(members)))

    async def live(member: Member) -> None:
        if not member.assignment:
            await member.join()
        while not is_settled():
            if await member.heartbeat():
                await asyncio.sleep(0.05)
            else:
                await member.join()

    await asyncio.gather(*(live(member) for member in members))


def test_a_group_of_two_hundred_members_settles_while_messages_flow() -> None:
    async def scenario(broker: Broker) -> None:
        line = await Line.open(broker)
        await line.ask(Api.FIND_COORDINATOR, key_type=0, coordinator_keys=["large"])
        id = await topic_id(line, "t")
        is_over = asyncio.Event()
        flow = asyncio.create_task(keep_producing(line, id, is_over))
        lines = [await Line.open(broker) for _ in range(200)]
        members = [Member(each, "large") for each in lines]
        await stabilize(members)
        assert len({member.generation for member in members}) == 1
        assert sorted(int(member.assignment) for member in members) == list(range(200))
        assert len({member.id for member in members}) == 200
        # How many generations there are is the scheduler's choice, but nobody joins one twice:
        # each join counts for one, the first only for the member's id.
        assert all(member.joins <= member.generation + 1 for member in members)

        gone, members = members[:100], members[100:]
        for member in gone:
            leaving = [{"member_id": member.id}]
            await member.line.ask(Api.LEAVE_GROUP, group_id="large", members=leaving)
        await stabilize(members)
        assert sorted(int(member.assignment) for member in members) == list(range(100))
        is_over.set()
        assert await flow > 0
        for each in [line, *lines]:
            each.close()

    with Broker() as broker:
        broker.create_topic("t")
        asyncio.run(asyncio.wait_for(scenario(broker), PATIENCE_S))


@pytest.mark.slow
def test_a_thousand_groups_work_at_once_while_messages_flow() -> None:
    async def work(member: Member, id: Any) -> None:
        await member.join()
        for offset in range(3):
            assert await member.heartbeat()
            assert await member.commit(id, offset) == 0

    async def drive(line: Line, groups: list[str], id: Any) -> None:
        # A connection serves many groups, as that of a large client would.
        members = [Member(line, group) for group in groups]
        for member in members:
            await work(member, id)

    async def scenario(broker: Broker) -> None:
        line = await Line.open(broker)
        await line.ask(Api.FIND_COORDINATOR, key_type=0, coordinator_keys=["any"])
        id = await topic_id(line, "t")
        is_over = asyncio.Event()
        flow = asyncio.create_task(keep_producing(line, id, is_over))
        names = [f"group-{number}" for number in range(1_000)]
        lines = [await Line.open(broker) for _ in range(50)]
        work = [drive(each, names[place::50], id) for place, each in enumerate(lines)]
        await asyncio.gather(*work)
        is_over.set()
        assert await flow > 0
        listed = await line.ask(Api.LIST_GROUPS, states_filter=["Stable"], types_filter=[])
        assert {group.group_id for group in listed.groups} == set(names)
        wanted = [{"topic_id": id, "partition_indexes": [0]}]
        answer = await line.ask(
            Api.OFFSET_FETCH, groups=[{"group_id": name, "topics": wanted} for name in names]
        )
        found = {group.topics[0].partitions[0].committed_offset for group in answer.groups}
        assert found == {2}
        for each in [line, *lines]:
            each.close()

    with Broker() as broker:
        broker.create_topic("t")
        asyncio.run(asyncio.wait_for(scenario(broker), PATIENCE_S))
