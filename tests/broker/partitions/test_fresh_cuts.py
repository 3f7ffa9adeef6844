"""Elections of replicas whose last cut is not on disk: each waits for its own, and for no other."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.broker.node import Node
from moldau.broker.partitions import flusher as flushers
from moldau.broker.partitions import fresh_cuts
from moldau.broker.partitions.flusher import Flusher
from moldau.broker.partitions.fresh_cuts import FreshCuts, is_fresh
from moldau.broker.partitions.partition import Partition
from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.state.topics import PartitionState
from moldau.log.config import LogConfig
from moldau.log.flushes.flush import Flush
from moldau.log.flushes.flushing import prepare_flush
from moldau.log.log import Log
from moldau.log.store.store import LogStore
from moldau.log.truncation import promises_more, truncate_to
from moldau.records.record import Record, build_batch
from moldau.testing.waiting import until_async

TOPIC_ID = UUID(int=5)
MANY = 200
WITHIN_S = 100


class Disk:
    """Flushes of the logs in `slow` wait; `prepared` counts those that are not done with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slow: set[str] = set()
        self.free = threading.Event()
        self.prepared = self.most_prepared = 0
        self._run, self._done = Flush.run, Flush.done
        monkeypatch.setattr(Flush, "run", lambda flush: self.run(flush))
        monkeypatch.setattr(Flush, "done", lambda flush: self.done(flush))
        monkeypatch.setattr(flushers, "prepare_flush", self.prepare)

    def run(self, flush: Flush) -> None:
        if Path(flush._folder).name in self.slow:
            assert self.free.wait(WITHIN_S)
        self._run(flush)

    def done(self, flush: Flush) -> None:
        self.prepared -= 1
        self._done(flush)

    def prepare(self, log: Log) -> Flush | None:
        flush = prepare_flush(log)
        self.prepared += flush is not None
        self.most_prepared = max(self.prepared, self.most_prepared)
        return flush


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.setattr(fresh_cuts, "_AGAIN_S", 0.05)
    disk = Disk(monkeypatch)
    yield disk
    disk.free.set()


class Cuts:
    """Partitions whose logs have been cut, and those that were given their roles, by round."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.flusher = Flusher(node.loop)
        self.given: list[Partition] = []
        self.rounds: Counter[int] = Counter()
        self.failures = 0
        self.fresh = FreshCuts(node, self._give)
        self._round = 0
        self._tick()

    def _tick(self) -> None:
        self._round += 1
        self._ticking = self.node.loop.call_soon(self._tick)

    def _give(self, partition: Partition) -> None:
        assert not is_fresh(partition)
        self.rounds[self._round] += 1
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a role that could not be taken")
        self.given.append(partition)

    async def many(self, count: int, *, below_point: bool = False) -> list[Partition]:
        logs = self.node.logs
        made = []
        for index in range(count):
            log = logs.create("t", index, TOPIC_ID)
            partition = Partition("t", TOPIC_ID, index, log, 1, [], self.flusher)
            partition.become(PartitionState((0, 1), (0, 1), 0, 3))
            for offset in range(3):
                record = Record(offset, 1_700_000_000_000, None, b"v")
                partition.append_replica(memoryview(build_batch([record], leader_epoch=3)), offset)
            made.append(partition)
        if below_point:
            for partition in made:
                await partition.force()
            logs.checkpoint()
        for partition in made:
            partition.is_cut = promises_more(partition.log, 1)
            truncate_to(partition.log, 1)
            assert is_fresh(partition)
        return made


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Cuts]:
    logs = LogStore(folder, defaults=LogConfig(), max_open_files=8)
    logs.open()
    store: Any = SimpleNamespace(state=None)
    cuts = Cuts(Node(BrokerSettings.parse({}), logs, store))
    try:
        yield cuts
    finally:
        cuts._ticking.cancel()
        await cuts.node.end_tasks()
        await cuts.flusher.close()
        logs.close()


def play(folder: Path, story: Callable[[Cuts], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with opened(folder) as cuts:
            await story(cuts)

    asyncio.run(asyncio.wait_for(whole(), WITHIN_S))


@pytest.mark.parametrize("below_point", [False, True])
def test_a_partition_on_a_slow_disk_holds_up_no_other(
    tmp_path: Path, disk: Disk, below_point: bool
) -> None:
    async def story(cuts: Cuts) -> None:
        slow, quick, later = await cuts.many(3, below_point=below_point)
        disk.slow = {"t-0"}
        cuts.fresh.force(slow)
        cuts.fresh.force(quick)
        await until_async(lambda: cuts.given == [quick], "the other leads")
        cuts.fresh.force(later)
        await until_async(lambda: cuts.given == [quick, later], "one that is elected later leads")
        disk.free.set()
        await until_async(lambda: cuts.given == [quick, later, slow], "all of them lead")

    play(tmp_path, story)


@pytest.mark.parametrize("below_point", [False, True])
def test_many_are_forced_and_led_a_few_at_a_time(
    tmp_path: Path, disk: Disk, below_point: bool
) -> None:
    async def story(cuts: Cuts) -> None:
        partitions = await cuts.many(MANY, below_point=below_point)
        disk.most_prepared = 0
        disk.slow = {f"t-{index}" for index in range(MANY)}
        for each in partitions:
            cuts.fresh.force(each)
        await until_async(lambda: disk.prepared >= 4, "the first")
        await asyncio.sleep(0)
        disk.free.set()
        await until_async(lambda: len(cuts.given) == MANY, "all of them lead")
        assert disk.most_prepared <= flushers._AT_A_TIME < MANY
        assert set(cuts.given) == set(partitions)
        assert max(cuts.rounds.values()) <= 4

    play(tmp_path, story)


def test_few_are_forced_at_a_time_however_many_followers_wait_for_that(
    tmp_path: Path, disk: Disk
) -> None:
    async def story(cuts: Cuts) -> None:
        partitions = await cuts.many(MANY)
        await asyncio.gather(*(each.force() for each in partitions))
        assert not any(is_fresh(each) for each in partitions)
        assert disk.most_prepared <= flushers._AT_A_TIME < MANY

    play(tmp_path, story)


def test_a_checkpoint_is_shared(tmp_path: Path, disk: Disk) -> None:
    async def story(cuts: Cuts) -> None:
        partitions = await cuts.many(MANY, below_point=True)
        logs = cuts.node.logs
        prepare = logs.prepare_checkpoint
        checkpoints = 0

        def counted() -> Callable[[], None]:
            nonlocal checkpoints
            checkpoints += 1
            return prepare()

        logs.prepare_checkpoint = counted  # type: ignore[method-assign]
        for each in partitions:
            cuts.fresh.force(each)
        await until_async(lambda: len(cuts.given) == MANY, "all of them lead")
        assert checkpoints == 1

    play(tmp_path, story)


@pytest.mark.parametrize("what", ["role", "checkpoint", "flush"])
def test_whatever_goes_wrong_is_logged_and_tried_again(
    tmp_path: Path,
    disk: Disk,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cuts: Cuts) -> None:
        partitions = await cuts.many(3, below_point=True)

        def refuse(*given: object) -> Any:
            raise RuntimeError("a mistake")

        with monkeypatch.context() as patch:
            if what == "role":
                cuts.failures = 3
            elif what == "checkpoint":
                patch.setattr(cuts.node.logs, "prepare_checkpoint", refuse)
            else:
                patch.setattr(flushers, "prepare_flush", refuse)
            for each in partitions:
                cuts.fresh.force(each)
            await until_async(lambda: "Traceback" in caplog.text, "it is logged")
            assert what == "role" or not cuts.given
        await until_async(lambda: set(cuts.given) == set(partitions), "all of them lead")
        assert len(cuts.given) == 3

    play(tmp_path, story)


def test_one_that_is_left_out_is_not_led_unless_it_is_elected_again(
    tmp_path: Path, disk: Disk
) -> None:
    async def story(cuts: Cuts) -> None:
        one, other, third = await cuts.many(3)
        disk.slow = {"t-0", "t-1"}
        for each in (one, other):
            cuts.fresh.force(each)
            await until_async(lambda: disk.prepared, "its flush")
            cuts.fresh.leave_out(each)
        cuts.fresh.force(other)
        disk.free.set()
        await until_async(lambda: cuts.given == [other], "the other leads")
        cuts.fresh.force(third)
        await until_async(lambda: cuts.given == [other, third], "the third leads")

    play(tmp_path, story)
