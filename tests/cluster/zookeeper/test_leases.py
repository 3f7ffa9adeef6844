"""Leases: how long a broker that hears nothing believes in its session."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from moldau.cluster.state.changes import (
    PartitionsChanged,
    TopicCreated,
)
from moldau.cluster.store import StoreError
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.testing import Ensemble
from moldau.testing.waiting import until_async
from tests.cluster.zookeeper.clusters import joined, partition, topic
from tests.cluster.zookeeper.proxy import Proxy
from tests.cluster.zookeeper.sessions import opened

BROKER = """
import asyncio, sys
from moldau.cluster.state.topics import BrokerInfo
from moldau.cluster.zookeeper import ZooKeeperStore

async def main():
    store = ZooKeeperStore(sys.argv[1], 7, session_timeout_ms=2500)
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


@pytest.mark.slow
def test_a_broker_out_of_touch_is_fenced_by_its_own_clock_and_comes_back(
    ensemble: Ensemble, chroot: str
) -> None:
    async def scenario() -> None:
        async with (
            Proxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1, session_ms=2500) as (one,),
            opened(ensemble.hosts + chroot, 2) as two,
        ):
            await two.store.register(two.info)
            await one.store.commit([TopicCreated(topic("a"))])
            proxy.freeze()
            await until_async(lambda: one.fences == [True])
            assert one.store.lease.is_over
            # By now, or soon, the ensemble has given it up too.
            await until_async(lambda: two.controller == 2 and set(two.store.state.brokers) == {2})
            shrunk = PartitionsChanged("a", {0: partition(1, 2, isr=(1,))})
            with pytest.raises(StoreError):
                await one.store.commit([shrunk], as_controller=False)
            proxy.heal()
            await until_async(lambda: one.fences == [True, False])
            await until_async(lambda: one.store.state.brokers == two.store.state.brokers)
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
        await session.open(within_s=60)
        # Two ticks are the least.
        await until_async(lambda: session.timeout_s == 0.4)
        assert session.lease.duration == 0.4
        assert "a session timeout of 0.4 s instead of the 0.3 s" in caplog.text
        await session.close()

    asyncio.run(scenario())


def test_a_lease_is_renewed_only_by_what_the_leader_of_the_ensemble_has_answered(
    ensemble: Ensemble,
) -> None:
    async def scenario() -> None:
        told: list[bool] = []
        session = Session(ensemble.hosts, 1500, on_change=lambda: None, on_lease=told.append)
        await session.open(within_s=60)
        assert session._heartbeat is not None
        session._heartbeat.cancel()
        # Any server answers these, for a while also when it is alone.
        async with asyncio.timeout(60):
            while not session.lease.is_over:
                await session.exists("/")
                await session.children("/")
                await asyncio.sleep(0.02)
        assert told == [True]
        async with asyncio.timeout(60):
            # An answer that is late renews nothing.
            while told == [True]:
                await session.sync()
        assert told[1] is False
        await session.close()

    asyncio.run(scenario())


def test_the_heartbeat_does_not_wait_for_what_is_read(ensemble: Ensemble) -> None:
    async def scenario() -> None:
        told: list[bool] = []
        session = Session(ensemble.hosts, 2000, on_change=lambda: None, on_lease=told.append)
        await session.open(within_s=60)
        # Somebody uses all that may be asked at once.
        for _ in range(session._window._value):
            await session._window.acquire()
        before = session.lease.ends_at
        await until_async(lambda: session.lease.ends_at > before + session.timeout_s)
        assert told == []
        await session.close()

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
                    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()

                assert (await line()).startswith("registered")
                await until_async(lambda: 7 in one.store.state.brokers)
                os.kill(process.pid, signal.SIGSTOP)
                # The controller hears of it from ZooKeeper alone, and tells.
                await until_async(lambda: 7 not in one.store.state.brokers)
                os.kill(process.pid, signal.SIGCONT)
                assert await line() == "fenced"
                assert (await line()).startswith("registered")
                assert await line() == "back"
                await until_async(lambda: 7 in one.store.state.brokers)
            finally:
                process.kill()
                await process.wait()

    asyncio.run(scenario())
