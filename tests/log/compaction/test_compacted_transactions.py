"""Compaction beside open and aborted transactions, and replicas that are made of what it leaves."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import msgspec
import pytest

from moldau.log.compaction.candidates import candidate
from moldau.log.log import Log
from moldau.log.replica import append_replica
from moldau.log.store.store import LogStore
from moldau.records.batch import batches, read_header
from moldau.records.record import Record, assemble
from tests.log.compaction.test_compaction import (
    COMPACT,
    DAY,
    NOW,
    append,
    compacted,
    flush,
    open_store,
)
from tests.log.making import TERM, guard_of, read_all
from tests.log.transactions.transacting import Transactional, committed, see_all


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return open_store(tmp_path / "data")


@pytest.fixture
def log(store: LogStore) -> Log:
    return store.create("t", 0, uuid.uuid4(), COMPACT)


def pad(log: Log, name: bytes, count: int = 6) -> None:
    """Enough to close the segments before."""
    for number in range(count):
        append(log, [(b"%s%d" % (name, number), b"x" * 100)])


def latest(records: list[Record]) -> dict[bytes, bytes | None]:
    """The state that a reader builds of a compacted topic."""
    found: dict[bytes, bytes | None] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found


def follower_of(log: Log, name: str) -> Log:
    """A replica that is made from scratch."""
    store = open_store(Path(log.folder).parent.parent / name)
    follower = store.create(name, 0, uuid.uuid4(), COMPACT)
    data = read_all(log)
    append_replica(follower, memoryview(bytearray(data)), 0, TERM, NOW)
    follower.commit()
    see_all(follower)
    return follower


def aborted_in(log: Log) -> list[int]:
    """The producers of all transactions that are indexed as aborted."""
    return [
        each.producer_id
        for segment in log.segments
        if segment.aborted is not None
        for each in segment.aborted.transactions()
    ]


def test_the_index_forgets_transactions_of_which_nothing_is_left(log: Log) -> None:
    producer = Transactional(log, 1)
    append(log, [(b"k", b"before")])
    producer.write((b"k", b"aborted"))
    producer.end(commits=False)
    pad(log, b"a")
    assert aborted_in(log) == [1]
    compacted(log)
    assert aborted_in(log) == []
    assert latest(committed(log))[b"k"] == b"before"


def test_a_transaction_with_records_after_the_compacted_part_stays_indexed(log: Log) -> None:
    """Partial compaction: the map is full before the end of the transaction."""
    producer = Transactional(log, 1)
    for number in range(40):
        producer.write((b"drop%d" % number, b"x" * 60))
        append(log, [(b"keep%d" % number, b"x" * 60)])
    producer.end(commits=False)
    pad(log, b"a")
    expected = latest(committed(log))
    end = compacted(log, map_bytes=24 * 8)
    assert 0 < end < 80
    assert latest(committed(log)) == expected
    assert aborted_in(log) == [1]
    follower = follower_of(log, "f")
    assert latest(committed(follower)) == expected
    while compacted(log, map_bytes=24 * 8) < log.segments.last.base:
        assert latest(committed(log)) == expected
    assert latest(committed(log)) == expected


def test_an_aborted_transaction_in_the_untouched_rest_of_a_segment_stays_indexed(
    store: LogStore,
) -> None:
    config = msgspec.structs.replace(COMPACT, segment_bytes=4000)
    log = store.create("large", 0, uuid.uuid4(), config)
    producer = Transactional(log, 1)
    for number in (0, *range(20)):
        append(log, [(b"k%d" % number, b"x")])
    first = producer.write((b"drop", b"aborted"))
    producer.end(commits=False)
    pad(log, b"a", 40)
    assert log.segments[1].base > first
    assert compacted(log, map_bytes=24 * 8) < first
    assert aborted_in(log) == [1]
    assert b"drop" not in latest(committed(log))


def test_a_compacted_transaction_is_not_open_to_a_new_replica(log: Log) -> None:
    """An empty batch is left for its sequence, and its marker may be gone one day."""
    producer = Transactional(log, 1)
    producer.write((b"k", b"old"))
    producer.end(commits=True)
    append(log, [(b"k", b"new")])
    pad(log, b"a")
    for days in range(1, 5):
        compacted(log, NOW + days * DAY)
        pad(log, b"b%d" % days)
    kept = {header.is_control for _, header in batches(read_all(log)) if header.producer_id == 1}
    assert kept == {False}
    follower = follower_of(log, "f")
    assert follower.last_stable == follower.log_end
    assert follower.producers.get(1) is not None
    assert latest(committed(follower)) == latest(committed(log))


def test_a_marker_stays_while_its_records_do(log: Log) -> None:
    """Otherwise a new replica would wait for the end of the transaction for ever."""
    producer = Transactional(log, 1)
    producer.write((b"k", b"value"))
    pad(log, b"a")
    marker = producer.end(commits=True)
    pad(log, b"b")
    for days in range(1, 5):
        compacted(log, NOW + days * DAY)
        pad(log, b"c%d" % days)
    offsets = [header.base_offset for _, header in batches(read_all(log)) if header.is_control]
    assert offsets == [marker]
    follower = follower_of(log, "f")
    assert follower.last_stable == follower.log_end
    assert latest(committed(follower))[b"k"] == b"value"


def test_markers_are_not_taken_for_records_of_one_key(log: Log) -> None:
    """KAFKA-13727 and its kin: they all have the same few keys."""
    producers = [Transactional(log, number) for number in range(5)]
    for producer in producers:
        producer.write((b"k%d" % producer.id, b"v" * 60))
    for producer in producers:
        producer.end(commits=producer.id != 3)
    pad(log, b"a")
    compacted(log, NOW + DAY)
    controls = [header for _, header in batches(read_all(log)) if header.is_control]
    assert len(controls) == 5
    assert latest(committed(log)).keys() >= {b"k0", b"k1", b"k2", b"k4"}


def test_an_unreadable_batch_of_an_aborted_transaction_goes(log: Log) -> None:
    """Written before the topic was compacted, when nobody looked into records."""
    log.config = log.config.__class__(segment_bytes=400)
    producer = Transactional(log, 1)
    batch = producer.batch((b"k", b"v"))
    batch[61] = 0x7F

    made = assemble(read_header(batch), batch[61:])
    view = memoryview(made)
    log.append(view, 0, NOW, guard=guard_of(log, view))
    log.commit()
    producer.end(commits=False)
    log.config = COMPACT
    pad(log, b"a")
    compacted(log)
    assert aborted_in(log) == []
    follower = follower_of(log, "f")
    assert len(committed(follower)) == len(committed(log))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_whatever_is_compacted_readers_and_new_replicas_see_the_same(
    store: LogStore, log: Log, seed: int
) -> None:
    choose = random.Random(seed)
    producers = [Transactional(log, number, bumps_epoch=number == 1) for number in range(3)]
    staged: dict[int, list[tuple[bytes, bytes | None]]] = {0: [], 1: [], 2: []}
    state: dict[bytes, bytes | None] = {}
    now_ms = NOW
    for step in range(150):
        producer = choose.choice(producers)
        action = choose.random()
        key = b"k%d" % choose.randrange(8)
        value = None if choose.random() < 0.15 else b"%d-" % step + b"x" * choose.randrange(80)
        if action < 0.5:
            # Two producers never write the same key: whose end comes first is not the question.
            key += b"-%d" % producer.id
            producer.write((key, value))
            staged[producer.id].append((key, value))
        elif action < 0.75:
            commits = choose.random() < 0.6
            producer.end(commits=commits)
            state.update(staged[producer.id] if commits else ())
            staged[producer.id].clear()
        elif action < 0.9:
            append(log, [(key, value)])
            state[key] = value
        else:
            now_ms += choose.choice([0, DAY])
            flush(log)
            if candidate(log, now_ms) is not None:
                compacted(log, now_ms, map_bytes=choose.choice([24 * 16, 1 << 16]))
        see_all(log)
    for producer in producers:
        producer.end(commits=False)
    see_all(log)
    expected = {key: value for key, value in state.items() if value is not None}
    assert latest(committed(log)) == expected
    follower = follower_of(log, "f")
    assert follower.last_stable == follower.log_end == log.log_end
    assert latest(committed(follower)) == expected
    for offset in range(0, log.log_end, 7):
        assert committed(log, offset) == committed(follower, offset)
    store.close()
