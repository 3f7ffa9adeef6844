"""Followers that fall behind and come back, and what writers are told meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from moldau.cluster.state.changes import TopicConfigured
from moldau.cluster.store import Conflict, StoreError
from moldau.records.record import Record, build_batch
from moldau.testing.waiting import until_async
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.replication.brokers import Brokers
from tests.broker.replication.conftest import Tell

# Longer than a busy machine holds up a process.
LAG = {"replica_lag_time_max_ms": "1000"}


def test_a_follower_that_lags_is_put_out_and_comes_back_when_it_has_caught_up(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (0, 1, 2))
        await cluster.write(0, "t", "a", acks=-1)
        cluster.deafen(2)
        assert await cluster.write(0, "t", "b", acks=-1) == 1
        await cluster.until_in_sync("t", (0, 1))
        cluster.hear(2)
        await cluster.until_in_sync("t", (0, 1, 2))
        assert cluster.state(0, "t").leader_epoch == 0
        await cluster.until_same("t", 0, 1, 2, watermark=2)

    tell(story, 3, **LAG)


def test_acks_all_needs_as_many_in_sync_as_the_topic_says(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", min_insync_replicas="2")
        cluster.deafen(1)
        # It was enough of them when the write was taken, and not when it was to be answered.
        answer = await cluster.produce(0, "t", "a", acks=-1)
        assert answer.error_code == Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        await cluster.until_in_sync("t", (0,))
        answer = await cluster.produce(0, "t", "b", acks=-1)
        assert answer.error_code == Error.NOT_ENOUGH_REPLICAS
        assert await cluster.write(0, "t", "c", acks=1) == 1
        cluster.hear(1)
        await cluster.until_in_sync("t", (0, 1))
        assert await cluster.write(0, "t", "d", acks=-1) == 2
        await cluster.until_same("t", 0, 1, watermark=3)

    tell(story, **LAG)


def test_nothing_more_is_shown_while_too_few_are_in_sync(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (0, 1, 2), min_insync_replicas="2")
        await cluster.write(0, "t", "a")
        await cluster.until_same("t", 0, 1, 2, watermark=1)
        for follower in (1, 2):
            cluster.deafen(follower)
        await cluster.write(0, "t", "b")
        await cluster.until_in_sync("t", (0,))
        # Who left last, when too few remained, has all that may be read.
        assert cluster.state(0, "t").elr != ()
        assert set(cluster.state(0, "t").elr) <= {1, 2}
        await cluster.write(0, "t", "c")
        assert await cluster.values(0, "t") == ["a"]
        fetched = await cluster.fetch(0, "t", 1, max_wait_ms=0)
        assert (fetched.high_watermark, fetched.records) == (1, None)
        cluster.hear(1)
        await cluster.until_in_sync("t", (0, 1))
        assert cluster.state(0, "t").elr == ()
        await cluster.until_same("t", 0, 1, watermark=3)

    tell(story, 3, **LAG)


def test_a_lower_minimum_shows_what_is_there_once_nobody_is_eligible(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", min_insync_replicas="2")
        cluster.deafen(1)
        await cluster.write(0, "t", "a")
        await cluster.until_in_sync("t", (0,))
        assert cluster.state(0, "t").elr == (1,)
        assert await cluster.values(0, "t") == []
        commit, asked = cluster[0].store.commit, asyncio.Event()

        async def unanswered(changes: Sequence[Any], *, as_controller: bool = True) -> None:
            asked.set()
            raise StoreError("out of reach")

        cluster[0].store.commit = unanswered  # type: ignore[method-assign]
        controller = await cluster.controller()
        change = TopicConfigured("t", {"min.insync.replicas": "1"})
        await (commit if controller == 0 else cluster[controller].store.commit)([change])
        await asyncio.wait_for(asked.wait(), 60)
        # Broker 1 may still be elected, and has nothing.
        assert await cluster.values(0, "t") == []
        cluster[0].store.commit = commit  # type: ignore[method-assign]
        await until_async(lambda: cluster.state(0, "t").elr == (), "nobody is eligible")
        assert await cluster.values(0, "t") == ["a"]

    tell(story, **LAG)


def test_a_repeated_batch_is_answered_only_once_the_first_is_committed(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        more: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        first = await cluster.produce(0, "t", "a", acks=-1, timeout_ms=20, **more)
        assert first.error_code == Error.REQUEST_TIMED_OUT
        repeated = asyncio.ensure_future(cluster.produce(0, "t", "a", acks=-1, **more))
        await until_async(lambda: cluster.partition(0, "t").waiters, "the repetition waits")
        assert not repeated.done()
        cluster.hear(1)
        assert (await repeated).base_offset == 0
        assert cluster.ends("t", 0, 1) == [1, 1]

    tell(story)


def test_many_partitions_change_with_few_commits(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", partitions=50)
        for index in range(50):
            await cluster.write(0, "t", "a", index=index, acks=-1)
        commits = 0
        commit = cluster[0].store.commit

        async def counted(changes: Sequence[Any], **more: Any) -> None:
            nonlocal commits
            commits += not more.get("as_controller", True)
            await commit(changes, **more)

        cluster[0].store.commit = counted  # type: ignore[method-assign]
        cluster.deafen(1)
        # In one request, so that all of them fall behind at the same time.
        batch = bytes(build_batch([Record(0, 0, None, b"b")]))
        topic = {
            "topic_id": cluster[0].state.topics["t"].id,
            "partition_data": [{"index": index, "records": batch} for index in range(50)],
        }
        await cluster.ask(0, Api.PRODUCE, acks=1, timeout=60_000, topic_data=[topic])
        for index in range(50):
            await cluster.until_in_sync("t", (0,), index)
        cluster.hear(1)
        for index in range(50):
            await cluster.until_in_sync("t", (0, 1), index)
        assert 2 <= commits <= 20

    tell(story, **LAG)


def test_until_the_cluster_has_answered_all_who_may_be_in_sync_count(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        await cluster.lead("t", 0, (0,))
        await cluster.write(0, "t", "a", acks=-1)
        leader = cluster.partition(0, "t")
        commit = cluster[0].store.commit
        outcomes: list[type[Exception]] = [Conflict, StoreError, StoreError]
        asked = 0

        async def unsure(changes: Sequence[Any], **more: Any) -> None:
            nonlocal asked
            if more.get("as_controller", True):
                return await commit(changes, **more)
            asked += 1
            if not outcomes:
                return await commit(changes, **more)
            outcome = outcomes.pop(0)
            if outcome is StoreError:
                # Nobody heard whether it happened: the follower may be electable.
                assert leader.in_sync is not None
                assert leader.in_sync.proposed == (0, 1)
                cluster.deafen(1)
                late = await cluster.produce(0, "t", "b", acks=-1, timeout_ms=30)
                assert late.error_code == Error.REQUEST_TIMED_OUT
                cluster.hear(1)
            raise outcome("for the sake of it")

        cluster[0].store.commit = unsure  # type: ignore[method-assign]
        cluster.hear(1)
        await cluster.until_in_sync("t", (0, 1))
        assert asked == 4
        await cluster.until_same("t", 0, 1, watermark=leader.log.log_end)

    tell(story)


def test_a_broker_that_left_is_not_waited_for_and_joins_under_its_new_registration(
    tell: Tell,
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.stop(1)
        await cluster.until_in_sync("t", (0,))
        assert await cluster.write(0, "t", "b", acks=-1) == 1
        await cluster.start(1)
        await cluster.until_in_sync("t", (0, 1))
        await cluster.until_same("t", 0, 1, watermark=2)
        follower = cluster.partition(0, "t").in_sync
        assert follower is not None
        assert follower.followers[1].epoch == cluster[0].state.brokers[1].epoch

    tell(story)


def test_a_follower_that_said_where_it_is_before_it_was_known_to_be_back_joins(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", min_insync_replicas="2")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.stop(1)
        await cluster.until_in_sync("t", (0,))
        leader, changes = cluster.partition(0, "t"), cluster[0].replication.isr_changes
        with monkeypatch.context() as patch:
            patch.setattr(changes, "_is_eligible", lambda in_sync, replica: False)
            await cluster.start(1)
            assert leader.in_sync is not None
            follower = leader.in_sync.followers[1]
            await until_async(lambda: follower.log_end == 1, "it says where it is")
            # The news that its last life has ended comes now.
            leader.registered({0})
            assert follower.log_end == -1
        # Nothing is written, so the follower has nothing new to say.
        cluster[0].replication.brokers_changed()
        await cluster.until_in_sync("t", (0, 1))
        assert await cluster.write(0, "t", "b", acks=-1) == 1

    tell(story)
