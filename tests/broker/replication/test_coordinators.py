"""Groups go where the leader of their partition goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.broker.coordination import shards as shards_module
from moldau.broker.coordination.loading import load
from moldau.broker.server import Broker as Server
from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS
from moldau.testing.waiting import until_async
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.replication.brokers import Brokers
from tests.broker.replication.conftest import Tell

OFFSETS_TOPIC = CONSUMER_OFFSETS.name


async def commit(cluster: Brokers, number: int, offset: int) -> Error:
    wanted = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    answer = await cluster.ask(
        number,
        Api.OFFSET_COMMIT,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            {
                "name": "t",
                "topic_id": cluster[number].state.topics["t"].id,
                "partitions": [wanted],
            }
        ],
    )
    return Error(answer.topics[0].partitions[0].error_code)


def is_loaded(server: Server) -> bool:
    return not isinstance(server.groups.shards.find("g"), Error)


async def committed(cluster: Brokers, number: int) -> tuple[Error, int]:
    connection = await cluster.connection(number, "reader")
    answer: Any = await connection.ask(
        Api.OFFSET_FETCH,
        {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}],
         "require_stable": False},
        7,
    )  # fmt: skip
    if answer.error_code:
        return Error(answer.error_code), -1
    return Error.NONE, int(answer.topics[0].partitions[0].committed_offset)


def test_a_group_goes_on_at_the_new_leader_of_its_partition(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.create(OFFSETS_TOPIC, cleanup_policy="compact")
        assert await commit(cluster, 0, 5) == Error.NONE
        assert await commit(cluster, 1, 6) == Error.NOT_COORDINATOR
        await cluster.until_same(OFFSETS_TOPIC, 0, 1)

        may_load = asyncio.Event()

        async def slow_load(*what: Any) -> None:
            await may_load.wait()
            await load(*what)

        monkeypatch.setattr(shards_module, "load", slow_load)
        await cluster.lead(OFFSETS_TOPIC, 1, (0, 1))
        assert await committed(cluster, 0) == (Error.NOT_COORDINATOR, -1)
        assert await committed(cluster, 1) == (Error.COORDINATOR_LOAD_IN_PROGRESS, -1)
        assert await commit(cluster, 1, 7) == Error.COORDINATOR_LOAD_IN_PROGRESS
        may_load.set()
        await until_async(lambda: is_loaded(cluster[1]), "the groups are read back")
        assert await committed(cluster, 1) == (Error.NONE, 5)
        assert await commit(cluster, 1, 8) == Error.NONE
        await cluster.lead(OFFSETS_TOPIC, 0, (0, 1))
        await until_async(lambda: is_loaded(cluster[0]), "and back again")
        assert await committed(cluster, 0) == (Error.NONE, 8)

    tell(story)


def test_a_commit_counts_when_all_in_sync_have_it_and_fails_with_its_leader(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.create(OFFSETS_TOPIC, cleanup_policy="compact")
        assert await commit(cluster, 0, 1) == Error.NONE
        cluster.deafen(1)
        waiting = asyncio.ensure_future(commit(cluster, 0, 2))
        partition = cluster.partition(0, OFFSETS_TOPIC)
        await until_async(lambda: partition.waiters, "the commit waits")
        assert await committed(cluster, 0) == (Error.NONE, 1)
        cluster.hear(1)
        assert await waiting == Error.NONE
        assert await committed(cluster, 0) == (Error.NONE, 2)
        cluster.deafen(1)
        waiting = asyncio.ensure_future(commit(cluster, 0, 3))
        await until_async(lambda: partition.waiters, "the commit waits")
        await cluster.lead(OFFSETS_TOPIC, 1, (0, 1))
        assert await waiting == Error.NOT_COORDINATOR
        await until_async(lambda: is_loaded(cluster[1]), "the groups are read back")
        # What the old leader alone had is gone there too.
        assert await committed(cluster, 1) == (Error.NONE, 2)
        await cluster.until_same(OFFSETS_TOPIC, 0, 1)

    tell(story)


def test_a_group_is_not_served_from_what_other_replicas_may_lack(tell: Tell) -> None:
    """Whoever leads next would know nothing of it: a member would own what is given to another."""

    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.create(OFFSETS_TOPIC, cleanup_policy="compact")
        assert await commit(cluster, 0, 1) == Error.NONE
        cluster.deafen(1)
        waiting = asyncio.ensure_future(commit(cluster, 0, 2))
        partition = cluster.partition(0, OFFSETS_TOPIC)
        await until_async(lambda: partition.waiters, "the commit waits")
        await cluster.lead(OFFSETS_TOPIC, 0, (0, 1))
        assert await waiting == Error.NOT_COORDINATOR
        await until_async(lambda: partition.waiters, "the groups are read back")
        assert await committed(cluster, 0) == (Error.COORDINATOR_LOAD_IN_PROGRESS, -1)
        cluster.hear(1)
        await until_async(lambda: is_loaded(cluster[0]), "the other one has it too")
        assert await committed(cluster, 0) == (Error.NONE, 2)

    tell(story)


def test_a_commit_that_takes_too_long_is_an_error_but_may_still_come_to_pass(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.create(OFFSETS_TOPIC, cleanup_policy="compact")
        cluster.deafen(1)
        assert await commit(cluster, 0, 4) == Error.COORDINATOR_NOT_AVAILABLE
        cluster.hear(1)
        await until_async(
            lambda: not cluster.partition(0, OFFSETS_TOPIC).waiters, "it is committed"
        )
        assert await committed(cluster, 0) == (Error.NONE, 4)

    tell(story, offsets_commit_timeout_ms="50")
