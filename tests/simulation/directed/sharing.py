"""Scripts about share groups: words that come late, locks and leaders that are over."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from moldau.broker.coordination.share.state import ShareKey
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.checks.deliveries import Delivery, Kind
from tests.simulation.checks.history import Violation
from tests.simulation.core.world import Node
from tests.simulation.directed.stage import Stage
from tests.simulation.load.share_member import GROUP, LOCK_S, ShareMember
from tests.simulation.load.talker import BACKOFF_S, Failed
from tests.simulation.scenario.scenario import SHARED, Load

_GIVEN_WITHIN_S = 20.0


def _member(stage: Stage, name: str) -> ShareMember:
    """A member that says and fetches only what it is told to."""
    member = stage.groups.new_sharer(name, 1.0)
    topic = stage.metadata.topics[SHARED]
    member.topic_id = topic.id
    member.assigned = list(range(len(topic.partitions)))
    return member


def _finish(stage: Stage) -> None:
    """Have somebody work off whatever is left."""
    stage.groups.begin(Load("sharer", "finisher", every_s=0.2, topic=SHARED))


async def _give(stage: Stage, partition: int, count: int) -> None:
    producer = stage.producer(f"giver at {stage.loop.now_s}", -1, partition, SHARED)
    while count:
        with suppress(Failed):
            leader = stage.leader(partition, SHARED)
            address = stage.address(leader, partition, SHARED)
            count -= await producer.write(address) is Error.NONE
        await stage.pause(BACKOFF_S)


async def _fetch(member: ShareMember, leader: Node, partition: int) -> None:
    with suppress(Failed):
        await member.request(Api.SHARE_FETCH, leader.id, {}, partition)


async def _take(
    stage: Stage, member: ShareMember, leader: Node, partition: int, least: int, deliveries: int
) -> list[Delivery]:
    """Fetch until it has so many records, each delivered so often."""
    until_s = stage.loop.now_s + _GIVEN_WITHIN_S
    while stage.loop.now_s < until_s:
        found = [each for each in member.held(leader.id) if each.count == deliveries]
        if len(found) >= least:
            return found
        await _fetch(member, leader, partition)
    raise Violation(f"{member.name} is not given {least} records for the {deliveries}. time")


async def _say(
    member: ShareMember, leader: Node, words: dict[Delivery, Kind], partition: int
) -> None:
    with suppress(Failed):
        await member.request(Api.SHARE_ACKNOWLEDGE, leader.id, words)


async def _roles(stage: Stage, *untouched: int) -> tuple[int, Node, Node]:
    """A partition, its leader, and another broker that keeps its state; one of those whose state
    has not begun, if any are to be left so."""
    topic = stage.metadata.topics[SHARED]
    for partition in range(len(topic.partitions)):
        await _give(stage, partition, 1)
    await _touch(stage, untouched)
    while True:
        for partition in untouched or range(len(topic.partitions)):
            leader = stage.leader(partition, SHARED)
            keeper = await _keeper(stage, str(ShareKey(GROUP, topic.id, partition)))
            if keeper is not None and keeper is not leader:
                return partition, leader, keeper
        # Others lead then, and keep.
        await stage.restart(stage.leader(partition, SHARED))


async def _keeper(stage: Stage, key: str) -> Node | None:
    found = await stage.ask(
        stage.any_broker(), Api.FIND_COORDINATOR, key_type=2, coordinator_keys=[key]
    )
    return stage.world.nodes.get(int(found.coordinators[0].node_id))


async def _touch(stage: Stage, untouched: Collection[int]) -> None:
    """Have the states of all partitions but some begun, and the topic that holds them made."""
    member = _member(stage, "first of all")
    for partition in set(member.assigned) - set(untouched):
        leader = stage.leader(partition, SHARED)
        (given,) = await _take(stage, member, leader, partition, 1, 1)
        await _say(member, leader, {given: Kind.ACCEPT}, partition)
    await member.leave()


async def late_word(stage: Stage) -> None:
    """What a member said in a session that it gave up arrives in its next one, when it has been
    given the same records again."""
    leader = stage.leader(0, SHARED)
    member = _member(stage, "member")
    await _give(stage, 0, 2)
    for _ in range(6):
        await _fetch(member, leader, 0)
    _, second = (await _take(stage, member, leader, 0, 2, 1))[:2]
    late = stage.hold_request(Api.SHARE_ACKNOWLEDGE)
    await _say(member, leader, {second: Kind.ACCEPT}, 0)
    _, second = (await _take(stage, member, leader, 0, 2, 2))[:2]
    late.let_go(1)
    await stage.pause(0.3)
    await _say(member, leader, {second: Kind.RELEASE}, 0)
    _finish(stage)


async def lost_lock(stage: Stage) -> None:
    """A member says something of a record whose lock has run out, and which another has by now."""
    leader = stage.leader(0, SHARED)
    first, second = _member(stage, "first"), _member(stage, "second")
    await _give(stage, 0, 1)
    (old,) = await _take(stage, first, leader, 0, 1, 1)
    await asyncio.sleep(LOCK_S + 0.5)
    await _take(stage, second, leader, 0, 1, 2)
    await stage.pause(0.2)
    await _say(first, leader, {old: Kind.ACCEPT}, 0)
    _finish(stage)


async def old_share_leader(stage: Stage) -> None:
    """What a former leader wrote of a record arrives after its successor's word that it is
    finished, and says that it was delivered more often."""
    partition, leader, keeper = await _roles(stage)
    first, second = _member(stage, "first"), _member(stage, "second")
    await _give(stage, partition, 2)
    await _take(stage, first, leader, partition, 2, 1)
    stage.cut(leader, keeper)
    await asyncio.sleep(LOCK_S + 0.5)
    # A write about the locks that ran out is under way; what follows waits for it.
    _, twice = (await _take(stage, first, leader, partition, 2, 2))[:2]
    await _say(first, leader, {twice: Kind.RELEASE}, partition)
    await asyncio.sleep(12.0)
    stage.freeze(leader)
    successor = await stage.succession(leader, partition, SHARED)
    _, last = (await _take(stage, second, successor, partition, 2, 1))[:2]
    await _say(second, successor, {last: Kind.ACCEPT}, partition)
    stage.mend(leader, keeper)
    await stage.pause(0.5)
    stage.thaw(leader)
    await stage.until(stage.metadata.is_whole, "every replica is in sync")
    await stage.restart(successor)
    heir = stage.leader(partition, SHARED)
    for _ in range(4):
        await _fetch(second, heir, partition)
    _finish(stage)


async def slept_leader(stage: Stage) -> None:
    """A leader finds no state of a partition, and begins one; its word arrives when its successor
    has done so, and all that was there is worked off."""
    partition, leader, keeper = await _roles(stage, 0)
    first, second = _member(stage, "first"), _member(stage, "second")
    await _give(stage, partition, 2)
    late = stage.hold_request(
        Api.INITIALIZE_SHARE_GROUP_STATE,
        source=leader,
        target=keeper,
        then=lambda: stage.freeze(leader),
    )
    stage.aside(_fetch(first, leader, partition))
    await stage.until(lambda: late.is_there, "a state is to begin")
    successor = await stage.succession(leader, partition, SHARED)
    given = await _take(stage, second, successor, partition, 3, 1)
    await _say(second, successor, dict.fromkeys(given, Kind.ACCEPT), partition)
    await stage.pause(0.5)
    late.let_go()
    await stage.pause(0.5)
    stage.thaw(leader)
    await stage.until(stage.metadata.is_whole, "every replica is in sync")
    await stage.restart(successor)
    heir = stage.leader(partition, SHARED)
    for _ in range(4):
        await _fetch(second, heir, partition)
    _finish(stage)


async def reset_offsets(stage: Stage) -> None:
    """What a leader wrote before the offsets of its group were set back arrives after that."""
    partition, leader, keeper = await _roles(stage)
    member = _member(stage, "member")
    await member.beat()
    await _give(stage, partition, 2)
    given = await _take(stage, member, leader, partition, 2, 1)
    late = stage.hold_request(Api.WRITE_SHARE_GROUP_STATE, source=leader, target=keeper)
    await _say(member, leader, dict.fromkeys(given, Kind.ACCEPT), partition)
    await member.leave()
    start = given[0].offset
    await _set_back(stage, partition, start)
    stage.groups.set_back(partition, start)
    late.let_go()
    await stage.pause(1.0)
    again = _member(stage, "another")
    (found, *_) = await _take(stage, again, stage.leader(partition, SHARED), partition, 1, 1)
    if found.offset != start:
        raise Violation(f"the group was set back to {start}, and is given {found.offset} first")
    _finish(stage)


async def _set_back(stage: Stage, partition: int, start: int) -> None:
    """Have the group, which is empty, begin there again."""
    wanted = {"partition_index": partition, "start_offset": start}
    while True:
        found = await stage.ask(
            stage.any_broker(), Api.FIND_COORDINATOR, key_type=0, coordinator_keys=[GROUP]
        )
        answer = await stage.ask(
            int(found.coordinators[0].node_id),
            Api.ALTER_SHARE_GROUP_OFFSETS,
            group_id=GROUP,
            topics=[{"topic_name": SHARED, "partitions": [wanted]}],
        )
        if not answer.error_code and not answer.responses[0].partitions[0].error_code:
            return
        await stage.pause(BACKOFF_S)
