"""States of share groups on their way to another broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.broker.coordination.share.state import ShareKey, Update
from moldau.broker.server import Broker as Server
from moldau.broker.sharing.persister import Persister
from moldau.testing import Broker
from tests.broker.wire_client import Client

WITHIN_S = 60.0


def test_a_slow_partition_of_the_states_does_not_hold_up_the_others(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the others would only have to wait for that.
    monkeypatch.setattr("moldau.broker.coordination.transactions.outbox.WITHIN_S", 3600.0)
    with Client(moldau_broker) as client:
        topic_id = client.topic_id(client.create(partitions=20))
    server = moldau_broker._server
    assert server is not None
    keys = [ShareKey("group", topic_id, index) for index in range(20)]
    moldau_broker._call(_write_one_slowly(server, keys))


async def _write_one_slowly(server: Server, keys: list[ShareKey]) -> None:
    states = server.shares.states
    # One that takes the broker itself for another.
    persister = Persister(server._host, server.id + 1, server.peers, states)
    assert await persister.initialize(keys[0], 0, 0) is None
    slow = keys[0]
    other = next(key for key in keys if _place(server, key) != _place(server, slow))
    assert await persister.initialize(other, 0, 0) is None
    is_held, may_go_on = asyncio.Event(), asyncio.Event()
    write = states.write

    async def held(key: ShareKey, state_epoch: int, update: Update) -> Any:
        if key == slow:
            is_held.set()
            await may_go_on.wait()
        return await write(key, state_epoch, update)

    states.write = held  # type: ignore[method-assign]
    update = Update(0, 5, 0)
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(persister.write(slow, 0, update))
        await is_held.wait()
        assert await persister.write(other, 0, update) is None
        assert not first.done()
        may_go_on.set()
    assert first.result() is None


def _place(server: Server, key: ShareKey) -> int:
    return server.shares.states.shards.partition_of(str(key))
