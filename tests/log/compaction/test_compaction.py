"""Compaction: the newest value of every key stays, offsets and order stay, nothing else is lost."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.compaction.candidates import Candidate, candidate, job_of
from moldau.log.compaction.compactor import compact
from moldau.log.compaction.job import Job, Outcome
from moldau.log.compaction.key_map import KeyMap
from moldau.log.compaction.swap import swap
from moldau.log.config import LogConfig
from moldau.log.flushes.flushing import prepare_flush
from moldau.log.log import Log
from moldau.log.retention import delete_records_before
from moldau.log.store.store import LogStore
from moldau.records.batch import batches
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, records_of

NOW = 1_700_000_000_000
DAY = 86_400_000
COMPACT = LogConfig(cleanup_policy=("compact",), segment_bytes=400, min_cleanable_dirty_ratio=0.0)

Pair = tuple[bytes, bytes | None]


def open_store(folder: Path, config: LogConfig = COMPACT) -> LogStore:
    store = LogStore(folder, defaults=config, max_open_files=64)
    store.open()
    return store


def append(log: Log, pairs: Iterable[Pair], codec: Codec = Codec.NONE, **producer: int) -> None:
    records = [Record(n, NOW + n, key, value, ()) for n, (key, value) in enumerate(pairs)]
    batch = build_batch(records, codec, base_offset=0, **producer)  # type: ignore[arg-type]
    log.append(memoryview(batch), 0, NOW)
    log.commit()
    log.advance_high_watermark(log.log_end)


def flush(log: Log) -> None:
    work = prepare_flush(log)
    if work is not None:
        work.run()
        work.done()


def contents(log: Log) -> list[Record]:
    """Every record, read as a consumer reads."""
    found: list[Record] = []
    offset = log.log_start
    while offset < log.high_watermark:
        piece = log.read(offset, 1 << 20, log.high_watermark)
        if piece is None:
            break
        data = os.pread(piece.file.fd, piece.size, piece.position)
        for position, header in batches(data):
            found += [record for record in records_of(data, position) if record.offset >= offset]
            offset = header.last_offset + 1
    return found


def run(log: Log, now_ms: int = NOW, map_bytes: int = 1 << 16) -> tuple[Candidate, Job, Outcome]:
    flush(log)
    chosen = candidate(log, now_ms)
    assert chosen is not None
    job = job_of(chosen, "tag", now_ms, map_bytes, 1e15, 0)
    outcome = compact(job)
    assert not outcome.error
    return chosen, job, outcome


def compacted(log: Log, now_ms: int = NOW, map_bytes: int = 1 << 16) -> int:
    chosen, job, outcome = run(log, now_ms, map_bytes)
    assert swap(chosen, job, outcome)
    assert log.clean_end == outcome.end
    return outcome.end


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return open_store(tmp_path)


@pytest.fixture
def log(store: LogStore) -> Log:
    return store.create("t", 0, uuid.uuid4(), COMPACT)


@pytest.mark.parametrize("codec", list(Codec))
def test_only_the_newest_value_of_a_key_stays_at_its_offset(log: Log, codec: Codec) -> None:
    for round_ in range(20):
        append(log, [(b"a", b"%d" % round_), (b"k%d" % round_, b"x" * 50)], codec)
    before = {record.offset: record for record in contents(log)}
    active = log.segments[-1].base
    compacted(log)
    after = contents(log)
    assert all(before[record.offset] == record for record in after)
    assert [record.offset for record in after] == sorted(record.offset for record in after)
    clean = [record for record in after if record.offset < active]
    assert len({record.key for record in clean}) == len(clean)
    newest = {record.key: record.offset for record in before.values()}
    assert set(newest.values()) <= {record.offset for record in after}


def test_the_active_segment_and_what_is_not_flushed_or_replicated_stays(log: Log) -> None:
    for _ in range(20):
        append(log, [(b"a", b"x" * 80)])
    flush(log)
    chosen = candidate(log, NOW)
    assert chosen is not None
    assert chosen.end == log.segments[-1].base
    log.high_watermark = log.segments[2].base
    chosen = candidate(log, NOW)
    assert chosen is not None
    assert chosen.end == log.segments[2].base


def test_a_reader_in_the_middle_of_replaced_segments_finishes(log: Log) -> None:
    for number in range(20):
        append(log, [(b"a", b"%050d" % number)])
    piece = log.read(0, 1 << 20, log.high_watermark)
    assert piece is not None
    before = os.pread(piece.file.fd, piece.size, piece.position)
    compacted(log)
    assert os.pread(piece.file.fd, piece.size, piece.position) == before


def test_a_tombstone_stays_for_its_time_and_then_goes(log: Log) -> None:
    append(log, [(b"a", b"x" * 100)])
    append(log, [(b"a", None)])
    for number in range(10):
        append(log, [(b"pad%d" % number, b"x" * 100)])
    compacted(log)
    tombstones = [record for record in contents(log) if record.key == b"a"]
    assert [(record.offset, record.value, record.timestamp) for record in tombstones] == [
        (1, None, NOW)
    ]
    for number in range(10):
        append(log, [(b"more%d" % number, b"x" * 100)])
    compacted(log, NOW + DAY - 1)
    assert b"a" in {record.key for record in contents(log)}
    for number in range(10):
        append(log, [(b"again%d" % number, b"x" * 100)])
    compacted(log, NOW + DAY)
    assert b"a" not in {record.key for record in contents(log)}


def test_what_does_not_fit_the_key_map_waits_for_the_next_round(log: Log) -> None:
    for number in range(60):
        append(log, [(b"key%d" % (number % 30), b"x" * 60)])
    end = compacted(log, map_bytes=24 * 20)
    assert 0 < end < log.segments[-1].base
    rounds = 0
    while end < log.segments[-1].base:
        end = compacted(log, map_bytes=24 * 20)
        rounds += 1
    assert rounds > 1
    keys = [record.key for record in contents(log) if record.offset < log.segments[-1].base]
    assert len(keys) == len(set(keys))


def test_the_last_batch_of_a_producer_is_remembered_even_if_its_records_are_gone(
    store: LogStore, log: Log, tmp_path: Path
) -> None:
    append(log, [(b"a", b"old")], producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(20):
        append(log, [(b"a", b"x" * 80)])
    compacted(log)
    store.close()
    os.unlink(tmp_path / ".kafka_cleanshutdown")
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    again = open_store(tmp_path).logs["t", 0]
    producer = again.producers.get(7)
    assert producer is not None
    assert producer.batches[-1].last_offset == 0


def test_segments_that_changed_meanwhile_are_left_alone(log: Log, tmp_path: Path) -> None:
    for _ in range(20):
        append(log, [(b"a", b"x" * 80)])
    chosen, job, outcome = run(log)
    delete_records_before(log, log.segments[1].base)
    before = contents(log)
    assert not swap(chosen, job, outcome)
    assert contents(log) == before
    assert not list((tmp_path / "t-0").glob("*.cleaned"))


def test_min_compaction_lag_keeps_young_records(log: Log) -> None:
    for _ in range(20):
        append(log, [(b"a", b"x" * 80)])
    flush(log)
    log.config = LogConfig.parse({"min.compaction.lag.ms": "1000"}, COMPACT)
    assert candidate(log, NOW) is None
    assert candidate(log, NOW + 2000) is not None


def test_max_compaction_lag_makes_a_hardly_dirty_log_due(log: Log) -> None:
    log.config = LogConfig.parse(
        {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "1000"}, COMPACT
    )
    for number in range(20):
        append(log, [(b"k%d" % number, b"x" * 80)])
    compacted(log)
    for number in range(5):
        append(log, [(b"m%d" % number, b"x" * 80)])
    flush(log)
    chosen = candidate(log, NOW)
    assert chosen is not None
    assert not chosen.is_due
    chosen = candidate(log, NOW + 1500)
    assert chosen is not None
    assert chosen.is_due


@pytest.mark.parametrize("renames", [*range(16), 10_000])
def test_a_crash_at_any_point_of_the_swap_leaves_a_right_log(
    store: LogStore, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    for number in range(30):
        append(log, [(b"a", b"%d" % number), (b"k%d" % (number % 3), b"x" * 60)])
    newest = {record.key: record for record in contents(log)}
    chosen, job, outcome = run(log)
    store.checkpoint()
    crash_after(monkeypatch, renames, lambda: swap(chosen, job, outcome))
    store.abandon()
    again = open_store(tmp_path).logs["t", 0]
    assert again.offline is None
    again.advance_high_watermark(again.log_end)
    after = contents(again)
    assert {record.key: record for record in after} == newest
    assert not [
        name for name in os.listdir(tmp_path / "t-0") if name.endswith((".swap", ".cleaned"))
    ]


class Crash(Exception):
    pass


def crash_after(monkeypatch: pytest.MonkeyPatch, renames: int, work: Callable[[], object]) -> None:
    """Does the work up to a number of renames, as a kill would interrupt it."""
    real, own = os.rename, threading.get_ident()
    done = 0

    def rename(source: str, target: str) -> None:
        nonlocal done
        # Other threads of this process may be those of brokers.
        if threading.get_ident() == own:
            if done >= renames:
                raise Crash
            done += 1
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    try:
        work()
    except Crash:
        pass
    monkeypatch.undo()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([b"a", b"b", b"c", b"d", b"e"]),
                st.one_of(st.none(), st.binary(max_size=60)),
            ),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=30,
    ),
    st.lists(st.integers(16, 4096), min_size=1, max_size=4),
)
def test_whatever_is_written_the_newest_value_of_every_key_is_read(
    tmp_path_factory: pytest.TempPathFactory, written: list[list[Pair]], maps: list[int]
) -> None:
    store = open_store(tmp_path_factory.mktemp("log"))
    log = store.create("t", 0, uuid.uuid4(), COMPACT)
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    for number, pairs in enumerate(written):
        for place, (key, value) in enumerate(pairs):
            newest[key] = (log.log_end + place, value)
        append(log, pairs)
        if number % 7 == 6:
            flush(log)
            if candidate(log, NOW) is not None:
                compacted(log, map_bytes=24 * maps[number % len(maps)])
    after = contents(log)
    assert {record.key: (record.offset, record.value) for record in after} == newest
    store.close()


@given(st.lists(st.tuples(st.binary(max_size=8), st.integers(0, 2**40))))
def test_a_key_map_is_a_dict_of_bounded_size(entries: list[tuple[bytes, int]]) -> None:
    table, expected = KeyMap(24 * 64), dict[bytes, int]()
    for key, offset in entries:
        if table.put(key, offset):
            expected[key] = offset
        else:
            assert len(table) == int(64 * 0.9)
            assert key not in expected
    assert {key: table.get(key) for key, _ in entries} == {
        key: expected.get(key, -1) for key, _ in entries
    }
