"""Durability: what a follower has on disk before it lets its leader count on it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.cluster.state.changes import TopicConfigured
from moldau.log.errors import StorageError
from moldau.log.flushes.flush import Flush
from moldau.log.flushes.flushing import has_unforced_cut
from moldau.testing.waiting import until_async
from moldau.wire.errors import Error
from tests.broker.replication.brokers import Brokers
from tests.broker.replication.conftest import Tell

FLUSHES = {"flush.messages": "1"}


class HeldDisk:
    """The disk of one broker, on which a topic's flushes wait until it is let go, or fail."""

    def __init__(self, run: Callable[[Flush], None]) -> None:
        self._run = run
        self._path = "/nowhere/"
        self._free = threading.Event()
        self.waiting = 0
        self.failures = 0
        # Whether those that wait lose what they were to force.
        self.loses = False

    def hold(self, folder: Path, topic: str) -> None:
        self._path = f"{folder}/{topic}-"

    def release(self) -> None:
        self._free.set()

    def run(self, flush: Flush) -> None:
        if flush._folder.startswith(self._path):
            if self.failures:
                # A small file could not be written, as on a full disk: it is tried again.
                self.failures -= 1
                raise StorageError.of(flush._folder, OSError(errno.ENOSPC, "no space left"))
            self.waiting += 1
            assert self._free.wait(60)
            if self.loses:
                flush.lost_data = True
                raise StorageError.of(flush._folder, OSError(errno.EIO, "cannot be written"))
        self._run(flush)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldDisk]:
    held = HeldDisk(Flush.run)
    monkeypatch.setattr(Flush, "run", lambda flush: held.run(flush))
    yield held
    held.release()


async def crash(cluster: Brokers, number: int) -> None:
    """Ends a broker without a last flush, as a power failure does."""
    logs = cluster[number].logs
    logs.close = logs.abandon  # type: ignore[method-assign]
    await cluster.stop(number)


def told(cluster: Brokers, leader: int, follower: int, topic: str) -> int:
    """The end of the follower's log, as the leader knows it."""
    in_sync = cluster.partition(leader, topic).in_sync
    assert in_sync is not None
    return in_sync.followers[follower].log_end


def test_a_restarted_follower_is_counted_on_once_what_it_had_is_on_disk(
    tell: Tell, disk: HeldDisk
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.create("plain")
        await cluster.write(0, "t", "a", "b", acks=-1)
        assert cluster.partition(1, "t").log.flushed == 0
        disk.hold(cluster[1].settings.folder, "t")
        await crash(cluster, 1)
        await cluster.until_in_sync("t", (0,))
        await cluster.commit(TopicConfigured("t", FLUSHES))
        await cluster.start(1)
        await until_async(lambda: disk.waiting, "the follower's fsync")
        # The follower copies other partitions meanwhile, by the same questions.
        await cluster.until_in_sync("plain", (0, 1))
        await cluster.write(0, "plain", "x", acks=-1)
        assert cluster.partition(1, "t").log.log_end == 2
        assert told(cluster, 0, 1, "t") == -1
        assert cluster.state(0, "t").isr == (0,)
        disk.release()
        await cluster.until_in_sync("t", (0, 1))
        assert cluster.partition(1, "t").log.flushed == 2

    tell(story)


def test_a_leader_that_steps_down_is_counted_on_once_what_it_had_is_on_disk(
    tell: Tell, disk: HeldDisk
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", flush_messages="1")
        await cluster.create("plain", (1, 0))
        await cluster.write(0, "t", "a", acks=-1)
        disk.hold(cluster[0].settings.folder, "t")
        await cluster.write(0, "t", "b")
        await until_async(lambda: cluster.ends("t", 1) == [2], "the follower has it")
        await until_async(lambda: cluster.partition(1, "t").log.flushed == 2, "on disk")
        assert cluster.partition(0, "t").log.flushed == 1
        await cluster.lead("t", 1, (0, 1))
        await cluster.write(1, "plain", "x", acks=-1)
        await cluster.write(1, "plain", "y", acks=-1)
        assert told(cluster, 1, 0, "t") == -1
        assert cluster.partition(1, "t").log.high_watermark == 1
        disk.release()
        await until_async(lambda: cluster.partition(1, "t").log.high_watermark == 2, "both have it")
        assert cluster.partition(0, "t").log.flushed == 2

    tell(story)


def test_a_follower_whose_flush_failed_is_counted_on_after_the_next_one(
    tell: Tell, disk: HeldDisk
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", flush_messages="1")
        await cluster.create("plain")
        await cluster.write(0, "t", "a", acks=-1)
        disk.failures = 3
        disk.hold(cluster[1].settings.folder, "t")
        await cluster.write(0, "t", "b")
        await until_async(lambda: disk.waiting, "an fsync after some that failed")
        await cluster.write(0, "plain", "x", acks=-1)
        assert cluster.ends("t", 1) == [2]
        assert told(cluster, 0, 1, "t") == 1
        assert cluster.partition(0, "t").log.high_watermark == 1
        disk.release()
        await until_async(
            lambda: cluster.partition(0, "t").log.high_watermark == 2, "it is committed"
        )

    tell(story)


def test_a_cut_is_written_down_before_the_log_grows_though_the_term_ends_meanwhile(
    tell: Tell,
) -> None:
    free = threading.Event()

    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (0, 1, 2))
        await cluster.create("plain", (2, 0))
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, 2, watermark=1)
        cluster.deafen(1)
        cluster.deafen(2)
        await cluster.write(0, "t", "b", "c")
        await cluster[0]._upkeep.checkpoint()
        logs = cluster[0].logs
        prepare = logs.prepare_checkpoint
        waiting = 0

        def held() -> Callable[[], None]:
            write = prepare()

            def late() -> None:
                nonlocal waiting
                waiting += 1
                assert free.wait(60)
                write()

            return late

        logs.prepare_checkpoint = held  # type: ignore[method-assign]
        await cluster.lead("t", 1, (0, 1, 2))
        await until_async(lambda: cluster.ends("t", 0) == [1] and waiting, "the cut")
        # Another term, of another leader, begins before the cut is on disk.
        await cluster.lead("t", 2, (0, 1, 2))
        await cluster.write(2, "t", "d")
        await cluster.write(2, "plain", "x", acks=-1)
        await cluster.write(2, "plain", "y", acks=-1)
        points = cluster[0].settings.folder / "recovery-point-offset-checkpoint"
        assert "t 0 3" in points.read_text()
        assert cluster.ends("t", 0, 2) == [1, 2]
        free.set()
        await until_async(lambda: cluster.ends("t", 0) == [2], "it goes on")
        assert "t 0 3" not in points.read_text()
        assert not cluster.partition(0, "t").is_cut

    try:
        tell(story, 3)
    finally:
        free.set()


def test_what_was_cut_off_is_off_the_disk_before_other_records_take_its_place(
    tell: Tell, disk: HeldDisk
) -> None:
    """Some of its pages could come back among them after a power failure, in their epoch."""

    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.create("plain", (1, 0))
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.write(0, "t", "b", "c")
        disk.hold(cluster[0].settings.folder, "t")
        await cluster.lead("t", 1, (0, 1))
        await until_async(lambda: disk.waiting, "the fsync of what was cut")
        await cluster.write(1, "t", "d")
        await cluster.write(1, "plain", "x", acks=-1)
        await cluster.write(1, "plain", "y", acks=-1)
        assert cluster.ends("t", 0, 1) == [1, 2]
        disk.release()
        await cluster.until_same("t", 0, 1, watermark=2)

    tell(story)


@pytest.mark.parametrize("fails", ["no", "for a while", "for good"])
def test_a_broker_that_is_elected_at_once_leads_when_its_cut_is_on_disk(
    tell: Tell, disk: HeldDisk, fails: str
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.write(0, "t", "b", "c")
        disk.hold(cluster[0].settings.folder, "t")
        await cluster.lead("t", 1, (0, 1))
        await until_async(lambda: disk.waiting, "the fsync of what was cut")
        partition = cluster.partition(0, "t")
        await cluster.lead("t", 0, (0, 1))
        answer = await cluster.produce(0, "t", "d")
        assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert has_unforced_cut(partition.log)
        disk.failures = 1 if fails == "for a while" else 0
        disk.loses = fails == "for good"
        disk.release()
        if fails == "for good":
            # What it has can no longer be trusted.
            await until_async(lambda: cluster.partition(1, "t").is_leader, "the other one leads")
            return
        await until_async(lambda: partition.is_leader, "it leads")
        assert partition.log.offline is None
        assert not has_unforced_cut(partition.log)
        await cluster.write(0, "t", "d")
        assert cluster.ends("t", 0) == [2]

    tell(story)


def test_a_broker_that_is_elected_while_an_older_flush_runs_forces_its_cut_after_it(
    tell: Tell, disk: HeldDisk
) -> None:
    """The older one has the epochs of before the cut, and a name in the folder that both use."""

    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.lead("t", 0, (0, 1))
        await cluster.write(0, "t", "b", "c")
        partition = cluster.partition(0, "t")
        disk.hold(cluster[0].settings.folder, "t")
        older = asyncio.ensure_future(partition.force())
        await until_async(lambda: disk.waiting == 1, "a flush of what is to be cut")
        await cluster.lead("t", 1, (0, 1))
        await until_async(lambda: partition.log.log_end == 1, "the cut")
        await cluster.lead("t", 0, (0, 1))
        assert disk.waiting == 1
        disk.release()
        await older
        await until_async(lambda: partition.is_leader, "it leads")
        assert disk.waiting > 1
        assert not has_unforced_cut(partition.log)
        epochs = (cluster[0].settings.folder / "t-0" / "leader-epoch-checkpoint").read_text()
        assert epochs.splitlines()[2:] == [f"{epoch} {at}" for epoch, at in [(0, 0)]]

    tell(story)
