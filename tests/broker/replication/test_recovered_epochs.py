"""Leader epochs after a crash: a follower is cut by where its leader says that they began."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.log.errors import StorageError
from moldau.log.files.checkpoint import write_offsets
from moldau.testing.waiting import until_async
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error
from tests.broker.replication.brokers import Brokers, epochs_of, held
from tests.broker.replication.conftest import Tell


async def kill(cluster: Brokers, number: int) -> None:
    """End a broker without a last flush or checkpoint."""
    logs = cluster[number].logs
    logs.close = logs.abandon  # type: ignore[method-assign]
    await cluster.stop(number)


def epochs_on_disk(folder: Path) -> list[str]:
    return (folder / "t-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]


def test_an_epoch_goes_on_behind_one_in_which_nothing_was_written_and_a_crash(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (2, 0, 1))
        await cluster.write(2, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, 2, watermark=1)
        # What only the first leader has is never committed.
        cluster.deafen(0)
        cluster.deafen(1)
        cluster.deafen(2)
        await cluster.write(2, "t", "old")
        await cluster.lead("t", 0, (0, 1))
        await cluster.stop(2)
        await cluster.write(0, "t", "b")
        cluster.hear(1)
        await until_async(lambda: cluster.ends("t", 1) == [2], "the follower has b")
        cluster.deafen(1)
        await cluster.write(0, "t", "c")
        # The follower leads without writing anything, and its epoch comes to its disk.
        epoch = await cluster.lead("t", 1, (0, 1))
        await cluster.partition(1, "t").force()
        assert f"{epoch} 2" in epochs_on_disk(cluster[1].settings.folder)
        # The epoch before goes on where it began.
        await cluster.lead("t", 0, (0, 1))
        cluster.hear(1)
        await cluster.write(0, "t", "d", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=4)
        begun = epochs_of(cluster.partition(0, "t"))
        await kill(cluster, 1)
        await cluster.until_in_sync("t", (0,))
        await cluster.start(1)
        assert epochs_of(cluster.partition(1, "t")) == begun
        await cluster.until_in_sync("t", (0, 1))
        await cluster.lead("t", 1, (0, 1))
        cluster.hear(0)
        await cluster.start(2)
        await cluster.until_same("t", 0, 1, 2, watermark=4)
        assert held(cluster.partition(2, "t")) == ["a", "b", "c", "d"]

    tell(story, 3)


def test_a_follower_that_was_killed_after_a_cut_writes_down_that_its_log_is_shorter(
    tell: Tell,
) -> None:
    """Or the next crash finds what it has copied since below its recovery point."""

    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.write(0, "t", "b", "c")
        await cluster[0]._upkeep.checkpoint()
        points = cluster[0].settings.folder / "recovery-point-offset-checkpoint"
        logs = cluster[0].logs
        logs.prepare_checkpoint = lambda: lambda: None  # type: ignore[method-assign]
        await cluster.lead("t", 1, (0, 1))
        await until_async(lambda: cluster.ends("t", 0) == [1], "the cut")
        await kill(cluster, 0)
        assert "t 0 3" in points.read_text()
        await cluster.start(0)
        assert "t 0 3" not in points.read_text()
        await cluster.until_same("t", 0, 1)

    tell(story)


@pytest.mark.parametrize("leads", [False, True])
def test_a_follower_that_was_killed_after_a_cut_starts_on_a_full_disk_and_waits_for_room(
    tell: Tell, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.create("other", (0,))
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.write(0, "t", "b", "c")
        await cluster[0]._upkeep.checkpoint()
        folder = cluster[0].settings.folder
        points = folder / "recovery-point-offset-checkpoint"
        logs = cluster[0].logs
        logs.prepare_checkpoint = lambda: lambda: None  # type: ignore[method-assign]
        await cluster.lead("t", 1, (0, 1))
        await until_async(lambda: cluster.ends("t", 0) == [1], "the cut")
        await kill(cluster, 0)
        cluster.hear(1)
        if leads:
            await cluster.stop(1)
        refused = 0

        def full(path: str, offsets: dict[TopicPartition, int]) -> None:
            nonlocal refused
            if path.startswith(str(folder)):
                refused += 1
                raise StorageError.of(path, OSError(errno.ENOSPC, "no space left"))
            write_offsets(path, offsets)

        with monkeypatch.context() as patch:
            patch.setattr("moldau.log.store.checkpoints.write_offsets", full)
            await cluster.start(0)
            assert "t 0 3" in points.read_text()
            other = cluster.partition(0, "other")
            await until_async(lambda: other.is_leader, "others do not wait for that")
            await cluster.write(0, "other", "x")
            if leads:
                await cluster.lead("t", 0, (0,))
            tried = refused
            await until_async(lambda: refused > tried + 1, "it tries again")
            assert cluster.ends("t", 0) == [1]
            assert not cluster.partition(0, "t").is_leader
            assert "t 0 3" in points.read_text()
        if leads:
            await until_async(lambda: cluster.partition(0, "t").is_leader, "it leads")
        else:
            await cluster.write(1, "t", "d", acks=-1)
            await cluster.until_same("t", 0, 1, watermark=2)
        assert "t 0 3" not in points.read_text()

    tell(story)


def test_a_cut_is_written_down_though_nothing_counts_as_flushed_since_a_crash(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.write(0, "t", "b", "c")
        await cluster[0]._upkeep.checkpoint()
        points = cluster[0].settings.folder / "recovery-point-offset-checkpoint"
        await kill(cluster, 0)
        await until_async(lambda: cluster.state(1, "t").leader == 1, "the other leads")
        await cluster.start(0)
        assert "t 0 3" in points.read_text()
        await cluster.until_in_sync("t", (0, 1))
        assert cluster.ends("t", 0) == [1]
        assert "t 0 3" not in points.read_text()

    tell(story)


@pytest.mark.parametrize("refusal", [None, errno.ENOSPC, errno.EIO])
def test_a_broker_that_is_elected_at_once_leads_when_it_has_written_down_its_cut(
    tell: Tell, refusal: int | None
) -> None:
    free = threading.Event()

    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.write(0, "t", "b", "c")
        await cluster[0]._upkeep.checkpoint()
        logs = cluster[0].logs
        prepare = logs.prepare_checkpoint
        tries = 0

        def held_up() -> Callable[[], None]:
            write = prepare()

            def late() -> None:
                nonlocal tries
                tries += 1
                if refusal == errno.EIO or (refusal is not None and tries < 3):
                    raise StorageError.of("checkpoint", OSError(refusal, "refused"))
                assert free.wait(200)
                write()

            return late

        logs.prepare_checkpoint = held_up  # type: ignore[method-assign]
        await cluster.lead("t", 1, (0, 1))
        await until_async(lambda: tries, "the cut")
        points = cluster[0].settings.folder / "recovery-point-offset-checkpoint"
        partition = cluster.partition(0, "t")
        await cluster.lead("t", 0, (0, 1))
        answer = await cluster.produce(0, "t", "d")
        assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert "t 0 3" in points.read_text()
        free.set()
        if refusal == errno.EIO:
            # It may never come to that, and another one is in sync.
            await until_async(lambda: cluster.partition(1, "t").is_leader, "the other one leads")
            logs.prepare_checkpoint = prepare  # type: ignore[method-assign]
            return
        await until_async(lambda: partition.is_leader, "it leads")
        assert partition.log.offline is None
        assert "t 0 3" not in points.read_text()
        assert not partition.is_cut
        cluster.hear(1)
        await cluster.write(0, "t", "d", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=2)

    try:
        tell(story)
    finally:
        free.set()


def test_brokers_that_are_elected_for_many_partitions_write_down_their_cuts_at_once(
    tell: Tell,
) -> None:
    free = threading.Event()

    async def story(cluster: Brokers) -> None:
        count = 8
        await cluster.create("t", partitions=count)
        for index in range(count):
            await cluster.write(0, "t", "a", acks=-1, index=index)
        cluster.deafen(1)
        for index in range(count):
            await cluster.write(0, "t", "b", "c", index=index)
        await cluster[0]._upkeep.checkpoint()
        logs = cluster[0].logs
        prepare = logs.prepare_checkpoint
        tried = 0

        def held_up() -> Callable[[], None]:
            nonlocal tried
            tried += 1
            write = prepare()

            def late() -> None:
                assert free.wait(200)
                write()

            return late

        logs.prepare_checkpoint = held_up  # type: ignore[method-assign]
        partitions = [cluster.partition(0, "t", index) for index in range(count)]
        for index in range(count):
            await cluster.lead("t", 1, (0, 1), index)
        await until_async(lambda: all(each.is_cut for each in partitions), "the cuts")
        for index in range(count):
            await cluster.lead("t", 0, (0, 1), index)
        assert not any(each.is_leader for each in partitions)
        asked = tried
        free.set()
        await until_async(lambda: all(each.is_leader for each in partitions), "it leads")
        assert not any(each.is_cut for each in partitions)
        assert tried <= asked + 2

    try:
        tell(story)
    finally:
        free.set()
