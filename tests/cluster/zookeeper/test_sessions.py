"""Sessions: what becomes of a broker when its connection, its session or its ensemble fails."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator

import msgspec
import pytest
from kazoo.client import KazooClient

from moldau.cluster.state.changes import (
    BrokerJoined,
    BrokerLeft,
    PartitionsChanged,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.store import Conflict, StoreError
from moldau.cluster.zookeeper.sessions.operations import Unanswered, Unreachable
from moldau.testing import Ensemble
from moldau.testing.waiting import until_async
from tests.cluster.zookeeper.clusters import Member, joined, partition, topic
from tests.cluster.zookeeper.proxy import Proxy
from tests.cluster.zookeeper.sessions import opened


@pytest.fixture
def three() -> Iterator[Ensemble]:
    with Ensemble(servers=3, tick_ms=200) as ensemble:
        yield ensemble


async def expire(ensemble: Ensemble, member: Member, proxy: Proxy) -> None:
    """End a member's session behind its back: another client takes it over and closes it."""
    client_id = member.store._session._client.client_id
    proxy.cut()
    client = KazooClient(ensemble.hosts, client_id=client_id)
    await asyncio.to_thread(client.start, 20)
    await asyncio.to_thread(client.stop)
    client.close()
    proxy.heal()


def test_a_broker_whose_session_ended_is_fenced_and_enters_anew(
    ensemble: Ensemble, chroot: str
) -> None:
    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1) as (one,),
            opened(ensemble.hosts + chroot, 2) as two,
        ):
            await two.store.register(two.info)
            await one.store.commit([TopicCreated(topic("a"))])
            before = one.registered
            await until_async(lambda: 2 in one.store.state.brokers)
            two.changes.clear()
            await expire(ensemble, one, proxy)
            await until_async(lambda: one.fences == [True, False])
            assert one.rejoined == 1
            assert one.registered.epoch > before.epoch
            await until_async(lambda: BrokerJoined(one.registered) in two.changes)
            assert BrokerLeft(1) in two.changes
            await until_async(lambda: one.controller == two.controller == 2)
            assert "a" in one.store.state.topics
            await two.store.commit([TopicCreated(topic("b"))])
            await until_async(lambda: "b" in one.store.state.topics)

    asyncio.run(scenario())


def test_entering_anew_is_tried_until_it_works(ensemble: Ensemble, chroot: str) -> None:
    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1) as (one,),
        ):
            failures = [RuntimeError("not yet"), StoreError("not yet either")]

            async def rejoin() -> None:
                if failures:
                    raise failures.pop()
                await one._rejoin()

            one.store.on_new_session(rejoin)
            await expire(ensemble, one, proxy)
            await until_async(lambda: one.fences == [True, False])
            assert failures == []
            await until_async(lambda: one.controller == 1)

    asyncio.run(scenario())


def test_a_short_break_ends_nothing_and_a_commit_waits_for_it(
    ensemble: Ensemble, chroot: str
) -> None:
    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1) as (one,),
            opened(ensemble.hosts + chroot, 2) as two,
        ):
            proxy.cut()
            await until_async(lambda: not one.store._session.is_connected)
            committing = asyncio.create_task(one.store.commit([TopicCreated(topic("a"))]))
            await two.store.register(two.info)
            proxy.heal()
            await committing
            await until_async(lambda: "a" in two.store.state.topics)
            # What happened meanwhile is found though the watch for it was lost.
            await until_async(lambda: set(one.store.state.brokers) == {1, 2})
            assert one.fences == []
            assert one.controller == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("passes", [True, False], ids=["answer lost", "request lost"])
def test_a_commit_whose_answer_never_came_happens_once(
    ensemble: Ensemble, chroot: str, passes: bool
) -> None:
    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1) as (one,),
            opened(ensemble.hosts + chroot, 2) as two,
        ):
            proxy.break_at(b"/topics/marked", passes=passes)
            marked = topic("marked")
            await one.store.commit([TopicCreated(marked)])
            assert proxy.broken == 1
            assert one.topic("marked") == marked
            proxy.break_at(b"/topics/marked", passes=passes)
            await one.store.commit([PartitionsChanged("marked", {0: partition(1, 2, isr=(1,))})])
            assert proxy.broken == 2
            proxy.break_at(b"/topics/marked", passes=passes)
            await one.store.commit([TopicDeleted("marked", marked.id)])
            assert proxy.broken == 3
            assert one.changes[-3:] == [
                TopicCreated(marked),
                PartitionsChanged("marked", {0: partition(1, 2, isr=(1,))}),
                TopicDeleted("marked", marked.id),
            ]
            await one.store.commit([TopicCreated(topic("next"))])
            await until_async(lambda: two.store.state.topics == one.store.state.topics)

    asyncio.run(scenario())


def test_a_commit_whose_requests_are_all_lost_is_one_of_unknown_outcome(
    ensemble: Ensemble, chroot: str
) -> None:
    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1) as (one,),
        ):
            proxy.break_at(b"/topics/marked", passes=False, times=5)
            with pytest.raises(Unanswered, match="cannot know whether it took place"):
                await one.store.commit([TopicCreated(topic("marked"))])
            assert proxy.broken == 5
            assert "marked" not in one.store.state.topics
            await one.store.commit([TopicCreated(topic("marked"))])

    asyncio.run(scenario())


@pytest.mark.parametrize("passes", [True, False], ids=["answer lost", "request lost"])
@pytest.mark.parametrize("mark", [b'"folder_id"', b'"epoch"'], ids=["registration", "election"])
def test_a_registration_and_an_election_whose_answers_never_came_take_place(
    ensemble: Ensemble, chroot: str, mark: bytes, passes: bool
) -> None:
    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as proxy,
            opened(proxy.address + chroot, 1) as one,
        ):
            proxy.break_at(mark, passes=passes)
            registered = await one.store.register(one.info)
            await until_async(lambda: one.controller == 1)
            assert proxy.broken == 1
            assert one.store.state.brokers == {1: registered}
            await one.store.commit([TopicCreated(topic("a"))])
            shrunk = PartitionsChanged("a", {0: partition(1, 2, isr=(1,))})
            await one.store.commit([shrunk], as_controller=False)
            assert one.fences == []

    asyncio.run(scenario())


def test_a_busy_ensemble_has_its_time_to_give_out_a_first_session(
    ensemble: Ensemble, chroot: str
) -> None:
    async def scenario() -> None:
        # Later than a server may answer who could still save a session.
        async with (
            Proxy(ensemble.host(0), greets_after_s=0.6) as proxy,
            joined(proxy.address + chroot, 1, session_ms=2000) as (one,),
        ):
            assert one.registered.epoch > 0

    asyncio.run(scenario())


@pytest.mark.parametrize("at", [b"/producer-ids", b'"folder_id"'], ids=["reading", "registering"])
def test_a_start_waits_for_zookeeper_for_longer_than_a_session(
    ensemble: Ensemble, chroot: str, at: bytes
) -> None:
    async def scenario() -> None:
        async with Proxy(ensemble.host(0)) as proxy:
            one = Member(proxy.address + chroot, 1, session_ms=1000, connection_ms=60_000)
            proxy.break_at(at, passes=False)
            joining = asyncio.create_task(one.join())
            await until_async(lambda: proxy.broken == 1)
            proxy.cut()
            # Twice as long as the ensemble and the broker itself would believe in it.
            _, pending = await asyncio.wait([joining], timeout=2.5)
            assert pending, joining.exception()
            proxy.heal()
            await joining
            await until_async(lambda: one.controller == 1)
            await one.store.close()

    asyncio.run(scenario())


def test_a_start_without_zookeeper_ends_when_it_has_waited_long_enough(chroot: str) -> None:
    async def scenario() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            one = Member(f"127.0.0.1:{port}{chroot}", 1, session_ms=300, connection_ms=900)
            with pytest.raises(StoreError, match=r"answered within 0\.9 s"):
                await one.join()

    asyncio.run(scenario())


@pytest.mark.slow
def test_the_death_of_the_zookeeper_leader_costs_a_moment(three: Ensemble) -> None:
    async def scenario() -> None:
        async with joined(three.hosts + "/cluster", 1, 2) as (one, two):
            for _ in range(2):
                leader = await asyncio.to_thread(three.leader)
                await asyncio.to_thread(three.kill, leader)
                await one.store.commit([TopicCreated(topic(f"while-{leader}-is-gone"))])
                await until_async(lambda: two.store.state.topics == one.store.state.topics)
                await asyncio.to_thread(three.start, leader)
            assert one.fences == two.fences == []
            assert one.controller == 1

    asyncio.run(scenario())


def test_a_server_that_was_killed_and_restarted_is_used_again(chroot: str) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        async with joined(ensemble.hosts + chroot, 1, 2) as (one, two):
            await one.store.commit([TopicCreated(topic("a"))])
            ensemble.kill(0)
            await until_async(lambda: not one.store._session.is_connected)
            await asyncio.to_thread(ensemble.start, 0)
            await one.store.commit([TopicCreated(topic("b"))])
            await until_async(lambda: set(two.store.state.topics) == {"a", "b"})
            assert one.fences == two.fences == []

    with Ensemble(tick_ms=200) as ensemble:
        asyncio.run(scenario(ensemble))


def test_no_commit_is_lost_or_done_twice_however_connections_break(
    ensemble: Ensemble, chroot: str
) -> None:
    chance = random.Random(6)
    done = unknown = 0

    async def commit_often(member: Member) -> None:
        nonlocal done, unknown
        for _ in range(60):
            index = chance.randrange(4)
            before = member.topic("a").partitions[index]
            after = msgspec.structs.replace(before, leader_epoch=before.leader_epoch + 1)
            try:
                await member.store.commit(
                    [PartitionsChanged("a", {index: after})], as_controller=False
                )
                done += 1
            except (Conflict, Unreachable):
                pass
            except Unanswered:
                unknown += 1
            await asyncio.sleep(0)

    async def disturb(proxy: Proxy) -> None:
        while True:
            await asyncio.sleep(chance.random() * 0.1)
            if chance.random() < 0.8:
                proxy.break_at(b"/topics/a", passes=chance.random() < 0.5)
            else:
                proxy.cut()
                await asyncio.sleep(chance.random() * 0.05)
                proxy.heal()

    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as one_way,
            Proxy(ensemble.host(0)) as another,
            joined(one_way.address + chroot, 1) as (one,),
            opened(another.address + chroot, 2) as two,
        ):
            await one.store.commit([TopicCreated(topic("a", 4))])
            await until_async(lambda: "a" in two.store.state.topics)
            disturbing = [asyncio.create_task(disturb(p)) for p in (one_way, another)]
            await asyncio.gather(*(commit_often(m) for m in (one, one, two)))
            for task in disturbing:
                task.cancel()
            for proxy in (one_way, another):
                proxy.break_at(b"", passes=True)
                proxy.heal()
                assert proxy.broken > 0
            await until_async(lambda: one.topic("a") == two.topic("a"))
            epochs = sum(each.leader_epoch for each in one.topic("a").partitions)
            assert done <= epochs <= done + unknown
            assert done

    asyncio.run(scenario())


def test_an_ensemble_that_lost_its_memory_takes_no_topics_away(
    ensemble: Ensemble,
    chroot: str,
    raw: KazooClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1) as (one,),
        ):
            await one.store.commit([TopicCreated(topic("a"))])
            cluster_id, _ = raw.get("/id")
            raw.delete("/id")
            raw.delete("/topics/a")
            await expire(ensemble, one, proxy)
            await until_async(lambda: "lost its data" in caplog.text)
            assert one.fences == [True]
            assert "a" in one.store.state.topics
            raw.create("/id", cluster_id)
            await until_async(lambda: one.fences == [True, False])
            assert "a" in one.store.state.topics
            assert "nobody deleted the topic" in caplog.text

    asyncio.run(scenario())


def test_closing_takes_back_the_registration_at_once(ensemble: Ensemble, connect: str) -> None:
    async def scenario() -> None:
        # Sooner than its session could run out.
        async with joined(connect, 1, 2, session_ms=300_000) as (one, two):
            await two.store.close()
            await until_async(lambda: set(one.store.state.brokers) == {1})

    asyncio.run(scenario())
