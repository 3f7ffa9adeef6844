"""Scripts about consumer groups."""

from __future__ import annotations

from contextlib import suppress

from moldau.wire.apis import Api
from tests.simulation.directed.stage import Stage
from tests.simulation.load.member import Member
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
