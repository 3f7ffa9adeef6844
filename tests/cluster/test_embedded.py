from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.cluster import embedded
from moldau.cluster.embedded import EmbeddedStore
from moldau.cluster.producer_ids import BLOCK_SIZE, ProducerIds
from moldau.cluster.state.access import Acl, AclsChanged, ResourcePattern
from moldau.cluster.state.changes import (
    AnyChange,
    ProducerIdsAllocated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.state.topics import BrokerInfo, PartitionState, Topic
from moldau.cluster.store import StoreError
from tests.processes import started

BROKER = BrokerInfo(0, "localhost", 9092)
HERE = PartitionState((0,), (0,), 0)


def topic(name: str, partitions: int = 1) -> Topic:
    return Topic(name, uuid.uuid4(), (HERE,) * partitions)


@asynccontextmanager
async def opened(folder: Path, broker: BrokerInfo = BROKER) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(folder, broker)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def test_committed_changes_are_there_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        a = topic("a", 3)
        async with opened(tmp_path / "new") as store:
            cluster_id = store.state.cluster_id
            await store.commit([TopicCreated(a), TopicConfigured("a", {"retention.ms": "1"})])
            await store.commit([TopicCreated(topic("b"))])
        async with opened(tmp_path / "new") as store:
            assert store.state.cluster_id == cluster_id
            assert len(cluster_id) == 22
            assert set(store.state.topics) == {"a", "b"}
            assert store.state.topics["a"].id == a.id
            assert store.state.topics["a"].configs == {"retention.ms": "1"}

    asyncio.run(scenario())


def test_a_commit_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as store:
            await store.commit([TopicCreated(topic("a"))])
            left_by_a_crash = EmbeddedStore(tmp_path, BROKER)
            await left_by_a_crash.open()
            assert "a" in left_by_a_crash.state.topics
            await left_by_a_crash.close()

    asyncio.run(scenario())


def test_this_broker_is_known_and_is_the_controller(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as store:
            assert store.state.brokers == {0: BROKER}
            assert store.state.controller_id == 0
            await store.register(BrokerInfo(0, "localhost", 1234))
            assert store.state.brokers[0].port == 1234

    asyncio.run(scenario())


def test_listeners_see_each_batch_after_it_is_part_of_the_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as store:
            seen: list[Sequence[AnyChange]] = []

            def fails(changes: Sequence[AnyChange]) -> None:
                raise RuntimeError("not my day")

            def listen(changes: Sequence[AnyChange]) -> None:
                assert "a" in store.state.topics
                seen.append(changes)

            store.subscribe(fails)
            store.subscribe(listen)
            batch = [TopicCreated(topic("a"))]
            await store.commit(batch)
            assert seen == [batch]

    asyncio.run(scenario())


def is_below(folder: Path, fd: int) -> bool:
    """Whether an open file is ours: other threads of this process may be those of brokers."""
    return os.readlink(f"/proc/self/fd/{fd}").startswith(str(folder))


def test_commits_that_arrive_during_a_write_share_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = 0
    fsync = os.fsync

    def counting(fd: int) -> None:
        nonlocal flushes
        flushes += is_below(tmp_path, fd)
        fsync(fd)

    async def scenario() -> None:
        async with opened(tmp_path) as store:
            monkeypatch.setattr(os, "fsync", counting)
            topics = [topic(f"t{n}") for n in range(500)]
            await asyncio.gather(*(store.commit([TopicCreated(t)]) for t in topics))
            assert len(store.state.topics) == 500
        assert flushes <= 2
        async with opened(tmp_path) as store:
            assert list(store.state.topics) == [t.name for t in topics]

    asyncio.run(scenario())


def test_closing_finishes_what_is_under_way_and_refuses_the_rest(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore(tmp_path, BROKER)
        with pytest.raises(StoreError, match="closed"):
            await store.commit([TopicCreated(topic("early"))])
        await store.open()
        pending = [
            asyncio.create_task(store.commit([TopicCreated(topic(f"t{n}"))])) for n in range(5)
        ]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*pending)
        with pytest.raises(StoreError, match="closed"):
            await store.commit([TopicCreated(topic("late"))])
        async with opened(tmp_path) as again:
            assert len(again.state.topics) == 5

    asyncio.run(scenario())


def test_a_caller_that_goes_away_does_not_undo_its_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as store:
            task = asyncio.create_task(store.commit([TopicCreated(topic("a"))]))
            await asyncio.sleep(0)
            task.cancel()
            await store.commit([TopicCreated(topic("b"))])
            assert set(store.state.topics) == {"a", "b"}

    asyncio.run(scenario())


def test_a_write_that_fails_is_taken_back_and_the_next_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def full_disk(fd: int, data: memoryview) -> int:
        if len(data) > 10:
            return write(fd, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario() -> None:
        async with opened(tmp_path) as store:
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", full_disk)
                with pytest.raises(StoreError, match="No space left"):
                    await store.commit([TopicCreated(topic("a"))])
            assert not store.state.topics
            await store.commit([TopicCreated(topic("b"))])
        async with opened(tmp_path) as store:
            assert set(store.state.topics) == {"b"}

    asyncio.run(scenario())


def test_after_a_failed_flush_nothing_more_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def fails(fd: int) -> None:
        if is_below(tmp_path, fd):
            raise OSError(errno.EIO, "Input/output error")
        fsync(fd)

    async def scenario() -> None:
        async with opened(tmp_path) as store:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fails)
                with pytest.raises(StoreError, match="Input/output error"):
                    await store.commit([TopicCreated(topic("a"))])
            with pytest.raises(StoreError, match="restart the broker"):
                await store.commit([TopicCreated(topic("b"))])
            assert not store.state.topics

    asyncio.run(scenario())


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=80))
def test_a_torn_end_is_cut_and_later_commits_follow_what_was_whole(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    async def scenario() -> None:
        folder = tmp_path_factory.mktemp("store")
        async with opened(folder) as store:
            await store.commit([TopicCreated(topic("a"))])
            path = store.path
        path.write_bytes(path.read_bytes() + garbage)
        async with opened(folder) as store:
            assert set(store.state.topics) == {"a"}
            await store.commit([TopicCreated(topic("b"))])
        async with opened(folder) as store:
            assert set(store.state.topics) == {"a", "b"}

    asyncio.run(scenario())


def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as store:
            for name in "abc":
                await store.commit([TopicCreated(topic(name))])
            path = store.path
        data = path.read_bytes().replace(b'"name":"b"', b'"name":"x"')
        path.write_bytes(data)
        with pytest.raises(StoreError, match="damaged"):
            await EmbeddedStore(tmp_path, BROKER).open()
        assert path.read_bytes() == data

    asyncio.run(scenario())


def test_rules_in_the_last_line_are_not_taken_for_a_torn_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        orders = ResourcePattern(2, "orders", 3)
        async with opened(tmp_path) as store:
            await store.commit([TopicCreated(topic("a"))])
            await store.commit([AclsChanged(orders, (Acl("User:bob", "*", 3, 2),))])
            path = store.path
        sound = path.read_bytes()
        async with opened(tmp_path) as store:
            assert orders in store.state.access.acls
            await store.commit([TopicCreated(topic("b"))])
        async with opened(tmp_path) as store:
            assert set(store.state.topics) == {"a", "b"}
        # Whatever byte of the rule is damaged, it is not forgotten quietly.
        start = sound.index(b"AclsChanged") - 60
        for place in range(max(start, sound.index(b"\n", start) + 1), sound.rindex(b"\n", 0, -1)):
            damaged = bytearray(sound)
            damaged[place] ^= 1
            path.write_bytes(damaged)
            with pytest.raises(StoreError, match="damaged"):
                await EmbeddedStore(tmp_path, BROKER).open()

    asyncio.run(scenario())


def test_another_brokers_folder_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path):
            pass
        with pytest.raises(StoreError, match="belongs to broker 0"):
            await EmbeddedStore(tmp_path, BrokerInfo(1, "localhost", 9092)).open()

    asyncio.run(scenario())


def test_a_long_file_is_rewritten_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "COMPACT_ABOVE_BYTES", 2000)

    async def scenario() -> None:
        async with opened(tmp_path) as store:
            cluster_id = store.state.cluster_id
            kept = topic("kept", 2)
            await store.commit([TopicCreated(kept), ProducerIdsAllocated(7)])
            for n in range(50):
                await store.commit([TopicConfigured("kept", {"retention.ms": str(n)})])
            gone = topic("gone")
            await store.commit([TopicCreated(gone)])
            await store.commit([TopicDeleted("gone", gone.id)])
            path = store.path
        before = path.stat().st_size
        for _ in range(2):
            async with opened(tmp_path) as store:
                assert store.state.cluster_id == cluster_id
                assert store.state.topics.keys() == {"kept"}
                assert store.state.topics["kept"].configs == {"retention.ms": "49"}
                assert store.state.next_producer_id >= 7
                assert store.state.deleted == {gone.id}
                await store.allocate_producer_ids(1)
        assert path.stat().st_size < before / 4
        assert os.listdir(tmp_path) == [path.name]

    asyncio.run(scenario())


CREATE_FOREVER = """
import asyncio, sys, uuid
from moldau.cluster.state.changes import TopicCreated
from moldau.cluster.embedded import EmbeddedStore
from moldau.cluster.state.topics import BrokerInfo, PartitionState, Topic

async def main():
    store = EmbeddedStore(sys.argv[1], BrokerInfo(0, "localhost", 9092))
    await store.open()

    async def create(worker):
        number = 0
        while True:
            name = f"t-{worker}-{number}"
            partitions = (PartitionState((0,), (0,), 0),) * 100
            await store.commit([TopicCreated(Topic(name, uuid.uuid4(), partitions))])
            print(name, flush=True)
            number += 1

    await asyncio.gather(*(create(worker) for worker in range(5)))

asyncio.run(main())
"""


def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CREATE_FOREVER, str(tmp_path)]
    with started(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip() for _ in range(60)]
        process.kill()
        acknowledged += process.stdout.read().split("\n")[:-1]

    async def topics() -> dict[str, Topic]:
        async with opened(tmp_path) as store:
            return dict(store.state.topics)

    found = asyncio.run(topics())
    assert set(acknowledged) <= set(found)
    assert all(len(topic.partitions) == 100 for topic in found.values())


def test_producer_ids_never_repeat(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: list[int] = []
        for _ in range(3):
            async with opened(tmp_path) as store:
                ids = ProducerIds(store)
                seen += await asyncio.gather(*(ids.next() for _ in range(BLOCK_SIZE + 5)))
                ranges = await asyncio.gather(*(store.allocate_producer_ids(3) for _ in range(4)))
                seen += [producer_id for block in ranges for producer_id in block]
        assert len(set(seen)) == len(seen)

    asyncio.run(scenario())
