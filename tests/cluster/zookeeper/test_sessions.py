"""What becomes of a broker when its connection, its session or its ensemble fails."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

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
from moldau.cluster.zookeeper.operations import Unanswered, Unreachable
from moldau.cluster.zookeeper.session import Session
from moldau.testing import Ensemble
from tests.cluster.zookeeper.clusters import SESSION_MS, Member, joined, partition, topic, until
from tests.cluster.zookeeper.proxy import Proxy

BROKER = """
import asyncio, sys
from moldau.cluster.state.topics import BrokerInfo
from moldau.cluster.zookeeper import ZooKeeperStore

async def main():
    store = ZooKeeperStore(sys.argv[1], 7, session_timeout_ms=1000)
    await store.open()
    info = BrokerInfo(7, "127.0.0.1", 7, folder_id="f")
    async def rejoin():
        registered = await store.register(info)
        print("registered", registered.epoch, flush=True)
    store.on_fence(lambda fenced: print("fenced" if fenced else "back", flush=True))
    store.on_new_session(rejoin)
    await rejoin()
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def three() -> Iterator[Ensemble]:
    with Ensemble(servers=3, tick_ms=200) as ensemble:
        yield ensemble


@asynccontextmanager
async def opened(connect: str, id: int) -> AsyncIterator[Member]:
    """A member that is not registered."""
    member = Member(connect, id)
    await member.store.open()
    try:
        yield member
    finally:
        await member.store.close()


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
            await until(lambda: 2 in one.store.state.brokers)
            two.changes.clear()
            await expire(ensemble, one, proxy)
            await until(lambda: one.fences == [True, False])
            assert one.rejoined == 1
            assert one.registered.epoch > before.epoch
            await until(lambda: BrokerJoined(one.registered) in two.changes)
            assert BrokerLeft(1) in two.changes
            await until(lambda: one.controller == two.controller == 2)
            assert "a" in one.store.state.topics
            await two.store.commit([TopicCreated(topic("b"))])
            await until(lambda: "b" in one.store.state.topics)

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
            await until(lambda: one.fences == [True, False])
            assert failures == []
            await until(lambda: one.controller == 1)

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
            await until(lambda: not one.store._session.is_connected)
            committing = asyncio.create_task(one.store.commit([TopicCreated(topic("a"))]))
            await two.store.register(two.info)
            proxy.heal()
            await committing
            await until(lambda: "a" in two.store.state.topics)
            # What happened meanwhile is found though the watch for it was lost.
            await until(lambda: set(one.store.state.brokers) == {1, 2})
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
            await until(lambda: two.store.state.topics == one.store.state.topics)

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
            await until(lambda: one.controller == 1)
            assert proxy.broken == 1
            assert one.store.state.brokers == {1: registered}
            await one.store.commit([TopicCreated(topic("a"))])
            shrunk = PartitionsChanged("a", {0: partition(1, 2, isr=(1,))})
            await one.store.commit([shrunk], as_controller=False)
            assert one.fences == []

    asyncio.run(scenario())


def test_a_broker_out_of_touch_is_fenced_by_its_own_clock_and_comes_back(
    ensemble: Ensemble, chroot: str
) -> None:
    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1, session_ms=1000) as (one,),
            opened(ensemble.hosts + chroot, 2) as two,
        ):
            await two.store.register(two.info)
            await one.store.commit([TopicCreated(topic("a"))])
            proxy.freeze()
            await until(lambda: one.fences == [True])
            assert one.store.lease.is_over
            # By now, or soon, the ensemble has given it up too.
            await until(lambda: two.controller == 2 and set(two.store.state.brokers) == {2})
            shrunk = PartitionsChanged("a", {0: partition(1, 2, isr=(1,))})
            with pytest.raises(StoreError):
                await one.store.commit([shrunk], as_controller=False)
            proxy.heal()
            await until(lambda: one.fences == [True, False])
            await until(lambda: one.store.state.brokers == two.store.state.brokers)
            assert one.controller == 2
            assert one.rejoined == 1
            assert one.topic("a") == two.topic("a")
            assert one.topic("a").partitions == (partition(1, 2),)

    asyncio.run(scenario())


def test_a_session_is_believed_in_for_as_long_as_the_ensemble_grants(
    ensemble: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        session = Session(
            ensemble.hosts, 300, on_change=lambda: None, on_lease=lambda is_over: None
        )
        await session.open(within_s=20)
        # Two ticks are the least.
        await until(lambda: session.timeout_s == 0.4)
        assert session.lease.duration == 0.4
        assert "a session timeout of 0.4 s instead of the 0.3 s" in caplog.text
        await session.close()

    asyncio.run(scenario())


def test_a_lease_is_renewed_only_by_what_the_leader_of_the_ensemble_has_answered(
    ensemble: Ensemble,
) -> None:
    async def scenario() -> None:
        told: list[bool] = []
        session = Session(ensemble.hosts, 400, on_change=lambda: None, on_lease=told.append)
        await session.open(within_s=20)
        assert session._heartbeat is not None
        session._heartbeat.cancel()
        # Any server answers these, for a while also when it is alone.
        async with asyncio.timeout(20):
            while not session.lease.is_over:
                await session.exists("/")
                await session.children("/")
        assert told == [True]
        await session.sync()
        assert told == [True, False]
        await session.close()

    asyncio.run(scenario())


def test_the_heartbeat_does_not_wait_for_what_is_read(ensemble: Ensemble) -> None:
    async def scenario() -> None:
        told: list[bool] = []
        session = Session(ensemble.hosts, 1000, on_change=lambda: None, on_lease=told.append)
        await session.open(within_s=20)
        # Somebody uses all that may be asked at once.
        for _ in range(session._window._value):
            await session._window.acquire()
        before = session.lease.ends_at
        await until(lambda: session.lease.ends_at > before + session.timeout_s)
        assert told == []
        await session.close()

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
            await until(lambda: proxy.broken == 1)
            proxy.cut()
            # Twice as long as the ensemble and the broker itself would believe in it.
            _, pending = await asyncio.wait([joining], timeout=2.5)
            assert pending, joining.exception()
            proxy.heal()
            await joining
            await until(lambda: one.controller == 1)
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


def test_a_frozen_process_is_fenced_when_it_wakes(ensemble: Ensemble, connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", BROKER, connect, stdout=subprocess.PIPE
            )
            try:
                assert process.stdout is not None

                async def line() -> str:
                    assert process.stdout is not None
                    return (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()

                assert (await line()).startswith("registered")
                await until(lambda: 7 in one.store.state.brokers)
                os.kill(process.pid, signal.SIGSTOP)
                # The controller hears of it from ZooKeeper alone, and tells.
                await until(lambda: 7 not in one.store.state.brokers)
                os.kill(process.pid, signal.SIGCONT)
                assert await line() == "fenced"
                assert (await line()).startswith("registered")
                assert await line() == "back"
                await until(lambda: 7 in one.store.state.brokers)
            finally:
                process.kill()
                await process.wait()

    asyncio.run(scenario())


@pytest.mark.slow
def test_the_death_of_the_zookeeper_leader_costs_a_moment(three: Ensemble) -> None:
    async def scenario() -> None:
        async with joined(three.hosts + "/cluster", 1, 2) as (one, two):
            for _ in range(2):
                leader = await asyncio.to_thread(three.leader)
                await asyncio.to_thread(three.kill, leader)
                await one.store.commit([TopicCreated(topic(f"while-{leader}-is-gone"))])
                await until(lambda: two.store.state.topics == one.store.state.topics)
                await asyncio.to_thread(three.start, leader)
            assert one.fences == two.fences == []
            assert one.controller == 1

    asyncio.run(scenario())


def test_a_server_that_was_killed_and_restarted_is_used_again(chroot: str) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        async with joined(ensemble.hosts + chroot, 1, 2) as (one, two):
            await one.store.commit([TopicCreated(topic("a"))])
            ensemble.kill(0)
            await until(lambda: not one.store._session.is_connected)
            await asyncio.to_thread(ensemble.start, 0)
            await one.store.commit([TopicCreated(topic("b"))])
            await until(lambda: set(two.store.state.topics) == {"a", "b"})
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
            await until(lambda: "a" in two.store.state.topics)
            disturbing = [asyncio.create_task(disturb(p)) for p in (one_way, another)]
            await asyncio.gather(*(commit_often(m) for m in (one, one, two)))
            for task in disturbing:
                task.cancel()
            for proxy in (one_way, another):
                proxy.break_at(b"", passes=True)
                proxy.heal()
                assert proxy.broken > 0
            await until(lambda: one.topic("a") == two.topic("a"))
            epochs = sum(each.leader_epoch for each in one.topic("a").partitions)
            assert done <= epochs <= done + unknown
            assert done > 30

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
            await until(lambda: "lost its data" in caplog.text)
            assert one.fences == [True]
            assert "a" in one.store.state.topics
            raw.create("/id", cluster_id)
            await until(lambda: one.fences == [True, False])
            assert "a" in one.store.state.topics
            assert "nobody deleted the topic" in caplog.text

    asyncio.run(scenario())


def test_closing_takes_back_the_registration_at_once(ensemble: Ensemble, connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await two.store.close()
            # Sooner than its session could have run out.
            await until(lambda: set(one.store.state.brokers) == {1}, within_s=SESSION_MS / 2000)

    asyncio.run(scenario())
