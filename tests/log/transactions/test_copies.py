"""Transactions in a log that is cut, copied by followers, and deleted from its beginning."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.log.log import Log
from moldau.log.replica import append_replica
from moldau.log.retention import delete_records_before
from moldau.log.store.store import LogStore
from moldau.log.truncation import restart_at, truncate_to
from tests.log.making import NOW, TERM, batch_of, make_log, open_store, put, read_all
from tests.log.transactions.transacting import Transactional, see_all, values
from tests.log.transactions.transactional import SMALL, kept, mixed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    opened = open_store(tmp_path / "data", SMALL)
    yield opened
    opened.close()


@pytest.fixture
def log(store: LogStore) -> Log:
    return make_log(store)


# Truncation, and replicas


def test_truncating_a_marker_opens_its_transaction_again(log: Log) -> None:
    mixed(log)
    producer = Transactional(log, 9)
    start = producer.write((b"k", b"again"))
    before = log.aborted_transactions(0, log.log_end)
    marker = producer.end(commits=False)
    put(log, batch_of(size=300), batch_of(size=300))
    see_all(log)
    assert log.last_stable == log.log_end
    truncate_to(log, marker)
    assert (log.last_stable, log.log_end) == (start, marker)
    assert log.aborted_transactions(0, log.log_end) == before
    producer.end(commits=True)
    see_all(log)
    assert values(log)[-1] == b"again"


def test_truncating_at_every_offset_leaves_a_right_log(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data", SMALL)
    log = make_log(store)
    mixed(log)
    whole = read_all(log)
    for end in range(log.log_end - 1, -1, -3):
        truncate_to(log, end)
        fresh = store.create("fresh", end, uuid.uuid4())
        data = whole[: len(read_all(log))]
        append_replica(fresh, memoryview(bytearray(data)), 0, TERM, NOW)
        fresh.commit()
        see_all(log)
        see_all(fresh)
        assert log.last_stable == fresh.last_stable
        assert log.aborted_transactions(0, end) == fresh.aborted_transactions(0, end)
        assert log.producers.open == fresh.producers.open
    store.close()


def copy(source: Log, target: Log, start: int, stop: int | None = None) -> None:
    """Have one log follow another."""
    restart_at(target, start)
    data = read_all(source, start)
    append_replica(target, memoryview(bytearray(data)), start, TERM, NOW)
    target.commit()
    see_all(target)


def test_a_follower_indexes_the_same(store: LogStore, log: Log) -> None:
    expected = mixed(log)
    follower = store.create("f", 0, uuid.uuid4())
    copy(log, follower, 0)
    assert kept(follower) == expected
    assert follower.aborted_transactions(0, 99) == log.aborted_transactions(0, 99)
    assert [
        (segment.base, segment.aborted and [*segment.aborted.transactions()])
        for segment in follower.segments
    ] == [
        (segment.base, segment.aborted and [*segment.aborted.transactions()])
        for segment in log.segments
    ]


def test_a_replica_that_begins_inside_a_transaction_skips_the_rest_of_it(
    store: LogStore, log: Log
) -> None:
    aborted, committing, still_open = (Transactional(log, number) for number in (1, 2, 3))
    for producer in (aborted, committing, still_open):
        producer.write((b"k", b"early"))
    start = aborted.write((b"k", b"dropped"))
    committing.write((b"k", b"kept"))
    aborted.end(commits=False)
    committing.end(commits=True)
    see_all(log)
    follower = store.create("f", 0, uuid.uuid4())
    copy(log, follower, start)
    assert follower.last_stable == follower.log_end
    assert kept(follower) == [b"kept"]
    # The third wrote nothing that is there, so that its end ends nothing.
    still_open.log = follower
    still_open.end(commits=False)
    see_all(follower)
    assert follower.aborted_transactions(start, follower.log_end) == [(1, start)]


def test_a_new_leader_ends_what_was_written_to_the_old_one(store: LogStore, log: Log) -> None:
    """The data came before the change of leaders, the marker after it."""
    producer = Transactional(log, 1)
    start = producer.write((b"k", b"a"))
    follower = store.create("f", 0, uuid.uuid4())
    copy(log, follower, 0)
    stale = Transactional(log, 1)
    # The old leader wrote a marker that nobody copied; the new one writes another.
    stale.end(commits=False)
    producer.log = follower
    marker = producer.end(commits=True, epoch=1)
    see_all(follower)
    assert kept(follower) == [b"a"]
    truncate_to(log, marker)
    assert log.last_stable == start
    append_replica(log, memoryview(bytearray(read_all(follower, marker))), marker, TERM, NOW)
    log.commit()
    see_all(log)
    assert kept(log) == [b"a"]
    assert log.aborted_transactions(0, 9) == []


# Deleting


def test_deleting_records_of_an_open_transaction_does_not_end_it(log: Log) -> None:
    producer = Transactional(log, 1)
    producer.write((b"k", b"a"))
    put(log, *[batch_of(size=100) for _ in range(8)])
    second = producer.write((b"k", b"b"))
    see_all(log)
    assert log.last_stable == 0
    delete_records_before(log, second)
    assert log.segments.base > 0
    assert log.last_stable == log.log_start == second
    producer.end(commits=False)
    see_all(log)
    assert log.last_stable == log.log_end
    assert kept(log) == []


def test_deleted_segments_take_their_indexes_with_them(log: Log) -> None:
    expected = mixed(log)
    offset = log.segments[3].base
    delete_records_before(log, offset)
    left = {int(name[:20]) for name in os.listdir(log.folder) if name.endswith(".txnindex")}
    assert min(left) >= offset
    assert kept(log) == [value for value in expected if value in kept(log)]
    assert not any(value.startswith((b"drop", b"long")) for value in kept(log) if value)
