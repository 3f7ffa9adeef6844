"""Fences in a log: a producer is shut out, and its transaction stays open for its marker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from moldau.log.errors import InvalidProducerEpoch, InvalidTransactionState
from moldau.log.fences import Fence, batch_of, fence_in
from moldau.log.log import Log
from moldau.log.replica import append_replica
from tests.log.making import NOW, guard_of, make_log, open_store
from tests.log.transactions.transacting import Transactional, committed, see_all

ROW = (b"k", b"v")


def fence(log: Log, epoch: int, producer_id: int = 1) -> None:
    batch = batch_of(log, Fence(producer_id, epoch))
    if batch is not None:
        log.append(batch, 0, NOW, from_client=False)
        log.commit()
        see_all(log)


def test_a_fenced_producer_writes_no_more_and_the_marker_ends_what_it_wrote(log: Log) -> None:
    producer = Transactional(log, 1, bumps_epoch=True)
    producer.write(ROW)
    fence(log, 1)
    with pytest.raises(InvalidProducerEpoch):
        producer.write(ROW)
    assert log.last_stable == 0
    assert log.producers.open == {1: 0}
    producer.epoch = 2
    producer.end(commits=True)
    see_all(log)
    assert log.last_stable == log.log_end
    assert [each.value for each in committed(log)] == [b"v"]


def test_a_fence_outlives_a_stop_a_crash_and_the_leader(tmp_path: Path) -> None:
    store = open_store(tmp_path / "leader")
    log = make_log(store)
    Transactional(log, 1, bumps_epoch=True).write(ROW)
    fence(log, 1)
    (tmp_path / "crashed").mkdir()
    for each in (tmp_path / "leader").iterdir():
        if each.is_dir():
            shutil.copytree(each, tmp_path / "crashed" / each.name)
    (segment,) = (tmp_path / "leader").glob("*/*.log")
    follower = open_store(tmp_path / "follower")
    copy = make_log(follower)
    append_replica(copy, memoryview(bytearray(segment.read_bytes())), 0, 0, NOW)
    copy.commit()
    store.close()
    for each in (tmp_path / "leader", tmp_path / "crashed"):
        again = open_store(each)
        assert_fenced(again.logs["t", 0])
        again.close()
    assert_fenced(copy)
    follower.close()


def assert_fenced(log: Log) -> None:
    with pytest.raises(InvalidProducerEpoch):
        Transactional(log, 1, bumps_epoch=True).write(ROW)
    assert log.producers.open == {1: 0}


def test_a_first_write_that_was_verified_before_the_fence_comes_too_late(log: Log) -> None:
    producer = Transactional(log, 1, bumps_epoch=True)
    batch = memoryview(producer.batch(ROW))
    guard = guard_of(log, batch, bumps_epoch=True)
    fence(log, 1)
    with pytest.raises(InvalidTransactionState):
        log.append(batch, 0, NOW, guard=guard)
    assert not log.producers.open


def test_a_fence_is_written_once_and_not_after_a_later_epoch(log: Log) -> None:
    Transactional(log, 1, bumps_epoch=True).write(ROW)
    fence(log, 3)
    end = log.log_end
    fence(log, 3)
    assert log.log_end == end
    with pytest.raises(InvalidProducerEpoch):
        fence(log, 2)


def test_only_an_empty_batch_of_a_producer_is_a_fence(log: Log) -> None:
    encoded = memoryview(Fence(1, 3).encode())
    assert fence_in(encoded) == Fence(1, 3)
    assert fence_in(encoded[:-1]) is None
    assert fence_in(memoryview(Fence(-1, 3).encode())) is None
    assert fence_in(memoryview(Transactional(log, 1).batch(ROW))) is None
