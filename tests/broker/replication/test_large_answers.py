"""Answers of many megabytes: a follower takes a little at a time, and looks again each time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.replication.follower import large_answers
from moldau.broker.replication.follower.followed import Followed
from moldau.broker.replication.follower.large_answers import LARGE, PIECE, pieces
from moldau.log.log import Log
from moldau.log.segments.prewrite import Prewrite
from moldau.records.record import Record, build_batch
from moldau.testing.waiting import until_async
from tests.broker.replication.brokers import Brokers, held
from tests.broker.replication.conftest import Tell

PATIENCE_S = 60
HUGE = "x" * (LARGE + 1000)


@pytest.fixture
def by_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes the loop has written with each call."""
    written: list[int] = []

    def watched(name: str) -> Callable[..., int]:
        write: Callable[..., int] = getattr(os, name)

        def call(*given: object) -> int:
            done = write(*given)
            if threading.current_thread() is threading.main_thread():
                written.append(done)
            return done

        return call

    for name in ("write", "writev", "pwrite"):
        monkeypatch.setattr(os, name, watched(name))
    return written


class Gate:
    """Where the thread that writes ahead for one broker is stopped."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """For broker 1."""
    gate = Gate()
    write = Prewrite.run

    def stop(self: Prewrite) -> None:
        if "/1/" in self._path:
            gate.reached.set()
            assert gate.opened.wait(PATIENCE_S)
        write(self)

    monkeypatch.setattr(Prewrite, "run", stop)
    yield gate
    gate.opened.set()


def test_a_thread_writes_a_batch_that_is_very_large(tell: Tell, by_loop: list[int]) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", max_message_bytes=str(50 << 20))
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.write(0, "t", HUGE, acks=-1)
        await cluster.write(0, "t", "b", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=3)

    tell(story)
    assert max(by_loop) < 100_000


def test_many_batches_are_taken_a_few_at_a_time(tell: Tell, by_loop: list[int]) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", max_message_bytes=str(5 << 20))
        cluster.deafen(1)
        value = "y" * 1_500_000
        for number in range(14):
            await cluster.write(0, "t", f"{number}{value}")
        by_loop.clear()
        cluster.hear(1)
        await cluster.until_same("t", 0, 1, watermark=14)

    tell(story, replica_fetch_response_max_bytes=str(60 << 20))
    assert 3_000_000 < max(by_loop) <= PIECE


async def open_gate(cluster: Brokers, gate: Gate) -> Log:
    """The thread goes on, and what becomes of it is over; broker 1's log."""
    log = cluster.partition(1, "t").log
    file = log.segments.last.batches
    assert file.prewrite is not None
    gate.opened.set()
    await until_async(lambda: file.prewrite is None, "the end of the thread")
    return log


def test_another_leads_while_the_thread_writes(tell: Tell, gate: Gate) -> None:
    """One that does not have the batch: the late end of it is no answer to anything."""

    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (0, 1, 2), max_message_bytes=str(50 << 20))
        await cluster.write(0, "t", "a", acks=-1)
        cluster.deafen(2)
        await cluster.write(0, "t", HUGE)
        await until_async(gate.reached.is_set, "the thread has begun")
        await cluster.lead("t", 2, (0, 1, 2))
        log = await open_gate(cluster, gate)
        cluster.hear(2)
        await cluster.write(2, "t", "b")
        await cluster.until_same("t", 0, 1, 2, watermark=2)
        assert held(cluster.partition(1, "t")) == ["a", "b"]
        assert log.truncations == 0

    tell(story, 3)


def test_the_follower_leads_before_the_thread_is_done(tell: Tell, gate: Gate) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", max_message_bytes=str(50 << 20))
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.write(0, "t", HUGE)
        await until_async(gate.reached.is_set, "the thread has begun")
        await cluster.lead("t", 1, (0, 1))
        log = await open_gate(cluster, gate)
        assert log.log_end == 1
        assert await cluster.write(1, "t", "b") == 1
        await cluster.until_same("t", 0, 1, watermark=2)
        assert held(cluster.partition(0, "t")) == ["a", "b"]

    tell(story)


def test_a_broker_that_stops_while_the_thread_writes_leaves_a_whole_log(
    tell: Tell, gate: Gate
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", max_message_bytes=str(50 << 20))
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.write(0, "t", HUGE)
        await until_async(gate.reached.is_set, "the thread has begun")
        stopping = asyncio.ensure_future(cluster.stop(1))
        await asyncio.sleep(0)
        gate.opened.set()
        await stopping
        await cluster.start(1)
        await cluster.until_same("t", 0, 1, watermark=2)

    tell(story)


def test_a_batch_with_a_wrong_checksum_is_not_taken(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a thread has written it: what it found counts."""
    damaged = 0
    begin = Followed.begin_prewrite

    def damage(self: Followed, batch: memoryview, question: int) -> Prewrite | None:
        nonlocal damaged
        if not damaged:
            damaged += 1
            batch[-1] ^= 1
        return begin(self, batch, question)

    monkeypatch.setattr(Followed, "begin_prewrite", damage)

    async def story(cluster: Brokers) -> None:
        await cluster.create("t", max_message_bytes=str(50 << 20))
        await cluster.write(0, "t", HUGE, acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)

    tell(story)
    assert damaged == 1


def batch(base: int, size: int) -> bytes:
    return bytes(build_batch([Record(base, 1_700_000_000_000, None, bytes(size))]))


@given(
    st.lists(st.integers(0, 3000), max_size=12),
    st.integers(100, 5000),
    st.binary(max_size=80),
)
def test_pieces_are_whole_batches_and_all_there_is(
    sizes: list[int], piece: int, tail: bytes
) -> None:
    whole = [batch(base, size) for base, size in enumerate(sizes)]
    records = memoryview(b"".join(whole) + tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_answers, "PIECE", piece)
        found = [bytes(each) for each in pieces(records)]
    assert b"".join(found) == records
    ends = {0, len(records)}
    end = 0
    for each in whole:
        end += len(each)
        ends.add(end)
    end = 0
    for number, each in enumerate(found):
        end += len(each)
        assert end in ends or number == len(found) - 1
        assert len(each) <= piece or each in whole or number == len(found) - 1
