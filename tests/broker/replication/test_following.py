"""Following: what followers copy, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import msgspec
import pytest

from moldau.broker.replication.follower import fetcher
from moldau.broker.replication.follower.followed import Followed
from moldau.broker.replication.leader.follower_fetch import FollowerFetchResponse
from moldau.broker.replication.leader.follower_session import FollowerSession
from moldau.cluster.state.changes import BrokerConfigured, PartitionsChanged, TopicDeleted
from moldau.log.log import Log
from moldau.log.retention import delete_records_before
from moldau.log.store.store import LogStore
from moldau.peer.aio import AsyncConnection
from moldau.records.batch import batches
from moldau.testing.waiting import until_async
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchRequest
from tests.broker.replication.brokers import Brokers, content, held
from tests.broker.replication.conftest import Tell


def test_acks_all_is_answered_when_every_in_sync_replica_has_it(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (0, 1, 2))
        assert await cluster.write(0, "t", "a", "b", acks=-1) == 0
        assert cluster.ends("t", 0, 1, 2) == [2, 2, 2]
        await cluster.until_same("t", 0, 1, 2, watermark=2)
        cluster.deafen(2)
        late = asyncio.ensure_future(cluster.write(0, "t", "c", acks=-1))
        await until_async(lambda: cluster.ends("t", 1) == [3], "one follower has it")
        assert await cluster.values(0, "t") == ["a", "b"]
        assert not late.done()
        cluster.hear(2)
        assert await late == 2
        await cluster.until_same("t", 0, 1, 2, watermark=3)
        assert await cluster.values(0, "t") == ["a", "b", "c"]

    tell(story, 3)


def test_a_leader_that_is_replaced_hands_its_waiting_writers_on(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        waiting = asyncio.ensure_future(cluster.produce(0, "t", "a", acks=-1))
        await until_async(lambda: cluster.partition(0, "t").waiters, "the write waits")
        epoch = await cluster.lead("t", 1, (0, 1))
        answer = await waiting
        assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, epoch)
        assert not cluster.partition(0, "t").waiters

    tell(story)


def test_many_partitions_are_copied_with_one_question_and_idle_ones_are_not_named(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Brokers) -> None:
        named: list[int] = []
        take = FollowerSession.take

        def counted(
            session: FollowerSession, request: FetchRequest, response: FollowerFetchResponse
        ) -> None:
            named.append(sum(len(each) for _, each in request.topics))
            take(session, request, response)

        monkeypatch.setattr(FollowerSession, "take", counted)
        await cluster.create("t", partitions=200)
        await cluster.write(0, "t", "x", index=150, acks=-1)
        (session,) = cluster[0].replication.follower_sessions._sessions.values()
        await until_async(lambda: len(session) == 200, "the session has them all")
        named.clear()
        for index in range(100, 120):
            await cluster.write(0, "t", "x", index=index, acks=-1)
        assert cluster.partition(1, "t", 119).log.log_end == 1
        assert len(cluster[1].replication._fetchers) == 1
        # Each write needs a question that names its partition, and few questions more.
        assert sum(named) <= 25

    tell(story)


def test_a_follower_that_stops_asks_for_nothing_more(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        problems: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(str(context)))
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        (copier,) = cluster[1].replication._fetchers.values()
        await until_async(lambda: len(copier._under_way) == 1, "a request waits at the leader")
        (key,) = copier._session._known
        copier._session.update(key)
        copier._ask_soon()
        await copier.stop()
        assert not problems

    tell(story)


def test_a_follower_far_behind_goes_on_where_the_leaders_log_begins(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        await cluster.lead("t", 0, (0,))
        for value in ("a", "b", "c"):
            await cluster.write(0, "t", value, acks=-1)
        leader = cluster.partition(0, "t").log
        delete_records_before(leader, 2)
        cluster.hear(1)
        await cluster.until_same_values("t", 0, 1, ["c"])
        assert cluster.partition(1, "t").log.log_start == 2
        await cluster.until_in_sync("t", (0, 1))
        await cluster.write(0, "t", "d", acks=-1)

    tell(story)


@pytest.mark.parametrize("question", ["leader_bounds", "epoch_end"])
def test_a_follower_whose_question_to_the_leader_is_lost_asks_again(
    tell: Tell, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    ask, asked = getattr(fetcher, question), 0

    async def lose_the_first(connection: AsyncConnection, *about: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            connection.close("cut by the test")
        return await ask(connection, *about)

    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        await cluster.lead("t", 0, (0,))
        for value in ("a", "b", "c"):
            await cluster.write(0, "t", value, acks=-1)
        delete_records_before(cluster.partition(0, "t").log, 2)
        monkeypatch.setattr(fetcher, question, lose_the_first)
        if question == "epoch_end":
            # As if what comes next lay behind a gap.
            monkeypatch.setattr(Followed, "_hides_begin", lambda *_: True)
        cluster.hear(1)
        await cluster.until_same_values("t", 0, 1, ["c"])
        assert asked > 1

    tell(story)


def test_a_log_that_begins_inside_of_a_batch_is_copied(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        await cluster.lead("t", 0, (0,))
        await cluster.write(0, "t", "a", "b", "c", acks=-1)
        delete_records_before(cluster.partition(0, "t").log, 2)
        cluster.hear(1)
        await until_async(lambda: cluster.ends("t", 1) == [3], "the copy")
        log = cluster.partition(1, "t").log
        assert (log.log_start, log.high_watermark, log.log_end) == (2, 3, 3)
        await cluster.write(0, "t", "d", acks=-1)
        await cluster.until_in_sync("t", (0, 1))
        assert content(cluster.partition(1, "t")) == content(cluster.partition(0, "t"))

    tell(story)


def test_gaps_of_a_compacted_leader_are_kept(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        await cluster.lead("t", 0, (0,))
        partition = cluster.partition(0, "t")
        for value in ("a", "b", "c", "d"):
            await cluster.write(0, "t", value)
        _lose_batches(partition.log, {1, 2})
        cluster.hear(1)
        await cluster.until_same("t", 0, 1, watermark=4)
        assert held(cluster.partition(1, "t")) == ["a", "d"]
        await cluster.until_in_sync("t", (0, 1))
        await cluster.lead("t", 1, (0, 1))
        assert await cluster.write(1, "t", "e", acks=-1) == 4
        await cluster.until_same("t", 0, 1, watermark=5)

    tell(story)


def _lose_batches(log: Log, offsets: set[int]) -> None:
    """Rewrites the only segment without some batches, as compaction does."""
    (segment,) = log.segments
    data = os.pread(segment.open().fd, segment.size, 0)
    kept = b"".join(
        data[position : position + header.size]
        for position, header in batches(data)
        if header.base_offset not in offsets
    )
    os.ftruncate(segment.open().fd, 0)
    os.pwrite(segment.open().fd, kept, 0)
    segment.batches.size = segment.end = len(kept)
    log.reader.forget()


def test_followers_follow_the_start_of_the_log_and_deletions_wait_for_them(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (0, 1, 2))
        for value in ("a", "b", "c"):
            await cluster.write(0, "t", value, acks=-1)
        assert await cluster.delete_records(0, "t", 2) == (Error.NONE, 2)
        assert [cluster.partition(each, "t").log.log_start for each in (0, 1, 2)] == [2, 2, 2]
        cluster.deafen(2)
        waiting = asyncio.ensure_future(cluster.delete_records(0, "t", 3))
        await until_async(lambda: cluster.partition(1, "t").log.log_start == 3, "one has deleted")
        assert not waiting.done()
        cluster.hear(2)
        assert await waiting == (Error.NONE, 3)
        cluster.deafen(2)
        await cluster.write(0, "t", "d")
        # What is not committed cannot be deleted.
        assert await cluster.delete_records(0, "t", 4) == (Error.OFFSET_OUT_OF_RANGE, -1)
        await cluster.lead("t", 0, (0, 1))
        await until_async(
            lambda: cluster.partition(0, "t").log.high_watermark == 4, "it is committed"
        )
        timed_out, _ = await cluster.delete_records(0, "t", 4, timeout_ms=50)
        assert timed_out == Error.REQUEST_TIMED_OUT

    tell(story, 3)


def test_a_follower_of_a_topic_with_a_flush_policy_flushes_before_it_asks_on(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", flush_messages="1000000", flush_ms="3600000")
        await cluster.create("plain")
        follower = cluster.partition(1, "t")
        for number in range(3):
            await cluster.write(0, "t", f"v{number}", acks=-1)
            assert follower.log.flushed >= number + 1
            assert cluster.partition(0, "t").log.flushed >= number + 1
        await cluster.write(0, "plain", "x", acks=-1)
        assert cluster.partition(1, "plain").log.flushed == 0

    tell(story)


def test_a_follower_asks_for_nothing_while_it_is_not_registered(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Brokers) -> None:
        lives: list[int] = []
        take = FollowerSession.take

        def noted(
            session: FollowerSession, request: FetchRequest, response: FollowerFetchResponse
        ) -> None:
            lives.append(request.replica_epoch)
            take(session, request, response)

        monkeypatch.setattr(FollowerSession, "take", noted)
        leader = await cluster.controller()
        follower = 1 - leader
        await cluster.create("t", (leader, follower))
        await cluster.write(leader, "t", "a", acks=-1)
        (fetcher,) = cluster[follower].replication._fetchers.values()
        membership = cluster[follower].membership
        register, may_register = membership.register, asyncio.Event()

        async def late() -> None:
            await may_register.wait()
            await register()

        membership.register = late  # type: ignore[method-assign]
        earlier = cluster[leader].state.brokers[follower]
        await cluster[leader].store.expel(earlier)
        await until_async(lambda: follower not in cluster[follower].state.brokers, "it knows")
        await until_async(lambda: fetcher._connection is None, "it asks no more")
        lives.clear()
        await cluster.write(leader, "t", "b")
        # Nor when it is to follow something else.
        await cluster.create("u", (leader, follower))
        may_register.set()
        await cluster.until_in_sync("t", (leader, follower))
        assert cluster.ends("t", follower) == [2]
        assert set(lives) == {cluster[leader].state.brokers[follower].epoch}

    tell(story)


def test_a_restarted_broker_knows_the_high_watermarks_that_it_wrote_down(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", "b", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=2)
        path = cluster[1].settings.folder / "replication-offset-checkpoint"
        await until_async(lambda: "t 0 2" in path.read_text(), "the high watermark is written down")
        folder = cluster[1].settings.folder
        await cluster.stop(1)
        (folder / ".kafka_cleanshutdown").unlink()
        logs = LogStore(folder, defaults=cluster[0].settings.topic_defaults, max_open_files=16)
        logs.open()
        assert logs.logs["t", 0].high_watermark == 2
        logs.close()

    tell(story, replica_high_watermark_checkpoint_interval_ms="20")


def test_a_partition_that_moves_here_is_copied_no_faster_than_it_may(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (0,))
        await cluster.create("other", (0, 1))
        await cluster.commit(
            BrokerConfigured(None, {"follower.replication.throttled.rate": "20000"})
        )
        rate = "follower_replication_throttled_rate"
        await until_async(lambda: getattr(cluster[1].settings, rate) == 20_000, "the throttle")
        for _ in range(4):
            await cluster.write(0, "t", "x" * 4000)
        started = asyncio.get_running_loop().time()
        state = cluster.state(0, "t")
        moving = msgspec.structs.replace(state, replicas=(0, 1), adding=(1,))
        await cluster.commit(PartitionsChanged("t", {0: moving}))
        await until_async(lambda: ("t", 0) in cluster[1].partitions, "the new replica")
        await until_async(lambda: cluster.ends("t", 1)[0] >= 1, "some of it")
        # Others are not held up by it.
        await cluster.write(0, "other", "y" * 8000, acks=-1)
        await until_async(lambda: cluster.ends("t", 1) == [4], "all of it")
        assert asyncio.get_running_loop().time() - started > 0.3

    tell(story, replica_fetch_max_bytes="4100")


def test_a_deleted_topic_is_forgotten_by_both_sides(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.create("u")
        await cluster.write(0, "t", "a", acks=-1)
        topic = cluster[0].state.topics["t"]
        await cluster.commit(TopicDeleted("t", topic.id))
        await until_async(lambda: ("t", 0) not in cluster[1].partitions, "the deletion")
        # The name begins anew, under another id.
        await cluster.create("t")
        assert await cluster.write(0, "t", "b", acks=-1) == 0
        await cluster.until_same("t", 0, 1, watermark=1)
        assert await cluster.write(0, "u", "a", acks=-1) == 0

    tell(story)


def is_paused(cluster: Brokers) -> bool:
    return any(each._reading.blocked for each in cluster[0].connections)


def test_a_writer_is_read_from_no_further_while_the_replicas_cannot_keep_up(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        value = "x" * 900_000
        await cluster.connection(0)
        writes = [asyncio.ensure_future(cluster.write(0, "t", value, acks=-1)) for _ in range(30)]
        # A connection also pauses for a moment while a thread works for it.
        await until_async(lambda: is_paused(cluster) and cluster.ends("t", 0)[0] >= 16, "a pause")
        assert cluster.ends("t", 0)[0] < 30
        cluster.hear(1)
        assert sorted(await asyncio.gather(*writes)) == list(range(30))
        await until_async(
            lambda: not any(each._reading.blocked for each in cluster[0].connections), "its end"
        )

    tell(story)
