"""The first read of a cluster's state, which everything that a broker does begins with."""

from __future__ import annotations

import asyncio

import pytest

from moldau.cluster.state.changes import TopicCreated
from moldau.cluster.zookeeper.sessions.operations import Unanswered
from tests.cluster.zookeeper.clusters import joined, topic


def test_a_session_that_ends_during_the_first_read_is_not_taken_for_one_that_was_read(
    connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            await one.store.commit([TopicCreated(topic("a"))])
            session, tree = one.store._session, one.store._tree
            load, session_id = tree.load, session.id
            loads = 0

            async def end_first() -> None:
                nonlocal loads
                loads += 1
                if loads == 1:
                    session.id = 0
                    # The next session, which is the same one here, begins soon.
                    asyncio.get_running_loop().call_soon(setattr, session, "id", session_id)
                    raise Unanswered("the session ended")
                await load()

            # As before the first read.
            tree._loaded_in = 0
            monkeypatch.setattr(tree, "load", end_first)
            async with one.store._lock:
                await tree.be_current()
            assert loads > 1

    asyncio.run(scenario())
