"""Lives of a broker that end halfway into the cluster or out of it: nothing is lost by that."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.membership import membership
from moldau.broker.server import Broker
from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.store import StoreError
from moldau.testing import Ensemble
from moldau.testing.waiting import until_async
from tests.cluster.zookeeper.clusters import Member
from tests.cluster.zookeeper.proxy import Proxy
from tests.log.making import open_store

WITHIN_S = 60


class Story:
    """Broker 1 in this process, which reaches ZooKeeper through `proxy`."""

    def __init__(self, folder: Path, direct: str, proxy: Proxy, chroot: str) -> None:
        self.folder = folder
        self.proxy = proxy
        self.direct = direct
        self._connect = proxy.address + chroot
        self._copies = 0

    def broker(self, folder: Path | None = None) -> Broker:
        settings = {
            "listeners": "127.0.0.1:0",
            "log.dirs": str(folder or self.folder),
            "zookeeper.session.timeout.ms": "1000" if folder else "6000",
            "node.id": "1",
            "zookeeper.connect": self._connect,
            "controlled.shutdown.timeout.ms": "500",
        }
        return Broker(BrokerSettings.parse(settings))

    async def is_believed(self, *, stops: bool) -> bool:
        """Whether a start would believe the folder now, after a clean stop or a kill."""
        self._copies += 1
        copy = self.folder.parent / f"copy-{self._copies}"
        shutil.copytree(self.folder, copy)
        store = open_store(copy)
        store.abandon()
        assert (store.life.last.marker is not None) == stops
        return store.life.last.lost_nothing(await self.number())

    async def number(self) -> int:
        """The number of the broker's registration, as the cluster knows it."""
        observer = Member(self.direct, 2)
        await observer.store.open()
        try:
            return observer.store._tree.folder_versions[1]
        finally:
            await observer.store.close()


@asynccontextmanager
async def begun(ensemble: Ensemble, tmp_path: Path) -> AsyncIterator[Story]:
    chroot = f"/lives-{uuid.uuid4().hex[:8]}"
    async with Proxy(ensemble.host(0)) as proxy:
        yield Story(tmp_path / "data", ensemble.hosts + chroot, proxy, chroot)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story(), WITHIN_S)

    asyncio.run(bounded())


@pytest.mark.parametrize("stops", [True, False])
def test_starts_that_end_after_the_arrival_cost_nothing(
    ensemble: Ensemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    async def scenario() -> None:
        async with begun(ensemble, tmp_path) as story:
            first = story.broker()
            await first.start()
            if not stops:
                # As a kill leaves it.
                killed = tmp_path / "killed"
                shutil.copytree(story.folder, killed)
                await first.store.close()
            await first.stop()
            if not stops:
                shutil.rmtree(story.folder)
                shutil.move(killed, story.folder)
            assert await story.is_believed(stops=stops)

            async def fail(peers: object, brokers: Iterable[int]) -> set[int]:
                # Killed here: the marker is gone by now.
                assert await story.is_believed(stops=False)
                raise StoreError("the connection keeps breaking")

            for _ in range(3):
                monkeypatch.setattr(membership, "dead_among", fail)
                with pytest.raises(StoreError, match="keeps breaking"):
                    await story.broker().start()
                monkeypatch.undo()
                assert await story.is_believed(stops=stops)

    run(scenario)


def test_a_kill_at_any_time_of_a_start_or_a_return_costs_nothing(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with begun(ensemble, tmp_path) as story:
            await (first := story.broker()).start()
            await first.stop()
            broker = story.broker()
            enter, register = membership.Membership.enter, membership.Membership.register
            seen = []

            async def look(then: Any, self: membership.Membership) -> None:
                seen.append(await story.is_believed(stops=False))
                await then(self)
                seen.append(await story.is_believed(stops=False))

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(membership.Membership, "enter", lambda self: look(enter, self))
                patch.setattr(membership.Membership, "register", lambda self: look(register, self))
                await broker.start()
                before = broker.logs.life.epoch
                await broker.store.expel(broker.state.brokers[1])
                await until_async(lambda: broker.logs.life.epoch > before and len(seen) == 8)
            assert seen == [True] * 8
            await broker.stop()
            assert await story.is_believed(stops=True)

    run(scenario)


def test_a_clean_stop_is_one_though_nobody_answers_that_the_broker_stops(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with begun(ensemble, tmp_path) as story:
            broker = story.broker()
            await broker.start()
            number = broker.store.registration
            story.proxy.break_at(b'"stopping":true', passes=True)
            stopping = asyncio.create_task(broker.stop())
            await until_async(lambda: story.proxy.broken == 1)
            story.proxy.cut()
            await stopping
            assert broker.store.registration == number, "it has heard of no other"
            assert await story.is_believed(stops=True)
            story.proxy.heal()

    run(scenario)


def test_a_second_broker_with_the_same_id_does_the_first_no_harm(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with begun(ensemble, tmp_path) as story:
            first = story.broker()
            await first.start()
            number = await story.number()
            with pytest.raises(StoreError, match="Give this broker another id"):
                await story.broker(tmp_path / "another").start()
            assert await story.number() == number == first.store.registration
            await first.stop()
            assert await story.is_believed(stops=True)

    run(scenario)
