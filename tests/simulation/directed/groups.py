"""Scripts about consumer groups of both protocols: what comes late."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from moldau.wire.apis import Api
from tests.simulation.checks.ownership import LATE_S
from tests.simulation.directed.stage import Stage
from tests.simulation.load.member import Member
from tests.simulation.load.subscriber import Subscriber
from tests.simulation.load.talker import BACKOFF_S, Failed
from tests.simulation.scenario.scenario import TOPIC


async def _enter(member: Member) -> list[int]:
    """Join, and ask again until that has worked."""
    while True:
        with suppress(Failed):
            assigned = await member.join()
            if assigned is not None:
                return assigned
        await member.pause(BACKOFF_S)


async def late_commit(stage: Stage) -> None:
    """A commit arrives when its member is in the next generation, and the group further on."""
    first, second = stage.member("first"), stage.member("second")
    topic_id = stage.metadata.topics[TOPIC].id
    await _enter(first)
    late = stage.hold_request(Api.OFFSET_COMMIT)
    with suppress(Failed):
        await first.commit(topic_id, 0, 5)
    joining = stage.aside(_enter(second))
    await stage.pause(0.5)
    assigned = await _enter(first)
    await stage.until(lambda: joining.is_done, "both are in the group")
    owner = first if 0 in assigned else second
    assert await owner.commit(topic_id, 0, 10), "nothing is committed"
    late.let_go(1)
    await stage.pause(0.5)
    await owner.committed(topic_id, 0)


async def _beat_until(
    stage: Stage, is_so: Callable[[], bool], *members: Subscriber, within_s: float = 30.0
) -> None:
    """Have them send heartbeats in turn until it is so."""
    until_s = stage.loop.now_s + within_s
    while not is_so() and stage.loop.now_s < until_s:
        for member in members:
            with suppress(Failed):
                await member.beat()
        await stage.pause(0.3)


async def late_heartbeat(stage: Stage) -> None:
    """What a member said when it had nothing arrives epochs later, when it is to give up a part of
    what it has by then (KIP-848)."""
    first, second, third = (
        stage.groups.new_subscriber(name, 1.0) for name in ("first", "second", "third")
    )
    await _beat_until(stage, lambda: first.partitions == 4, first)
    await _beat_until(stage, lambda: bool(first.unwanted), second, first)
    late = stage.mislay_request(Api.CONSUMER_GROUP_HEARTBEAT)
    with suppress(Failed):
        await second.beat()
    assert late.is_there, "it was not sent"
    assert not second.partitions, "it has something"
    await first.give_up(first.unwanted)
    await _beat_until(stage, lambda: second.partitions == 2, first, second)
    await first.leave()
    await _beat_until(stage, lambda: second.partitions == 4, second)
    # A heartbeat may be so late that nobody could tell, but only for a while.
    await _beat_until(stage, lambda: False, second, within_s=LATE_S)
    await _beat_until(stage, lambda: bool(second.unwanted), third, second)
    late.let_go()
    await _beat_until(stage, lambda: False, third, within_s=2.0)
    await second.give_up(second.unwanted)
    await _beat_until(stage, lambda: third.partitions == 2, second, third)
    assert third.partitions == 2, "it is given nothing"
