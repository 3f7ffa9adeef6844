"""Details of compaction: transactions, producers, damage, times, empty segments."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from msgspec.structs import replace

from moldau.log.compaction.candidates import candidate, job_of
from moldau.log.compaction.compactor import compact
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.lookup import max_timestamp, offset_for_time
from moldau.log.retention import delete_expired, delete_records_before, roll_if_due
from moldau.log.store.store import LogStore
from moldau.log.truncation import truncate_to
from moldau.records.batch import InvalidRecord, batches
from moldau.records.record import Record, build_batch, build_end_marker
from tests.log.compaction.test_compaction import (
    COMPACT,
    DAY,
    NOW,
    append,
    compacted,
    contents,
    flush,
    open_store,
)
from tests.log.making import guard_of


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return open_store(tmp_path)


@pytest.fixture
def log(store: LogStore) -> Log:
    return store.create("t", 0, uuid.uuid4(), COMPACT)


class Transactions:
    """A transactional producer and its coordinator, as far as the log sees them."""

    def __init__(self, log: Log, producer_id: int) -> None:
        self._log = log
        self._id = producer_id
        self._sequence = 0

    def write(self, key: bytes, value: bytes) -> int:
        batch = build_batch(
            [Record(0, NOW, key, value, ())],
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += 1
        view = memoryview(batch)
        offset, _ = self._log.append(view, 0, NOW, guard=guard_of(self._log, view))
        self._commit()
        return offset

    def end(self, *, commits: bool) -> None:
        marker = build_end_marker(
            commits=commits,
            coordinator_epoch=0,
            producer_id=self._id,
            producer_epoch=0,
            timestamp=NOW,
        )
        self._log.append(memoryview(marker), 0, NOW, from_client=False)
        self._commit()

    def _commit(self) -> None:
        self._log.commit()
        self._log.advance_high_watermark(self._log.log_end)


def pad(log: Log, name: bytes, count: int = 10) -> None:
    """Enough to close the segments before."""
    for number in range(count):
        append(log, [(b"%s%d" % (name, number), b"x" * 100)])


def markers(log: Log) -> list[int]:
    """The offsets of all control batches."""
    found = []
    for segment in log.segments:
        if segment.size:
            data = Path(segment.path).read_bytes()
            found += [header.base_offset for _, header in batches(data) if header.is_control]
    return found


def values(log: Log, key: bytes) -> list[bytes | None]:
    return [record.value for record in contents(log) if record.key == key]


def test_an_aborted_record_goes_and_does_not_take_the_committed_one_with_it(log: Log) -> None:
    append(log, [(b"a", b"committed")])
    producer = Transactions(log, 7)
    producer.write(b"a", b"aborted")
    producer.end(commits=False)
    pad(log, b"pad")
    compacted(log)
    assert values(log, b"a") == [b"committed"]


def test_a_transaction_whose_marker_lies_behind_the_compacted_part_counts(log: Log) -> None:
    append(log, [(b"a", b"committed")])
    producer = Transactions(log, 7)
    producer.write(b"a", b"aborted")
    for number in range(10):
        producer.write(b"more%d" % number, b"x" * 100)
    active = log.segments[-1].base
    producer.end(commits=False)
    assert log.log_end - 1 >= active
    compacted(log)
    assert values(log, b"a") == [b"committed"]


def test_an_open_transaction_and_what_follows_it_is_not_touched(log: Log) -> None:
    pad(log, b"before")
    producer = Transactions(log, 7)
    first = producer.write(b"a", b"open")
    pad(log, b"after", 20)
    flush(log)
    chosen = candidate(log, NOW)
    assert chosen is not None
    assert chosen.end <= first
    producer.end(commits=True)
    flush(log)
    chosen = candidate(log, NOW)
    assert chosen is not None
    assert chosen.end > first


def test_a_committed_record_replaces_an_older_one(log: Log) -> None:
    append(log, [(b"a", b"old")])
    producer = Transactions(log, 7)
    producer.write(b"a", b"new")
    producer.end(commits=True)
    pad(log, b"pad")
    compacted(log)
    assert values(log, b"a") == [b"new"]


def test_a_marker_stays_with_its_records_and_then_for_its_time(log: Log) -> None:
    producer = Transactions(log, 7)
    kept = producer.write(b"a", b"one")
    producer.end(commits=True)
    marker = kept + 1
    pad(log, b"pad")
    compacted(log, NOW)
    compacted_again = NOW + 2 * DAY
    pad(log, b"next")
    compacted(log, compacted_again)
    assert marker in markers(log)
    append(log, [(b"a", b"two")])
    # The producer is recognized by a newer batch, so nothing holds the old one.
    producer.write(b"b", b"x")
    producer.end(commits=True)
    pad(log, b"third")
    compacted(log, compacted_again)
    assert marker in markers(log)
    pad(log, b"fourth")
    compacted(log, compacted_again + DAY)
    assert marker not in markers(log)


def test_an_empty_batch_of_a_producer_goes_once_it_has_written_five_others(log: Log) -> None:
    append(log, [(b"a", b"old")], producer_id=7, producer_epoch=0, base_sequence=0)
    pad(log, b"a")
    append(log, [(b"a", b"new")])
    pad(log, b"pad")
    compacted(log)
    assert first_batch(log) == (0, 0)
    for sequence in range(1, 6):
        append(log, [(b"z", b"z")], producer_id=7, producer_epoch=0, base_sequence=sequence)
    pad(log, b"more")
    compacted(log)
    assert first_batch(log) != (0, 0)


def first_batch(log: Log) -> tuple[int, int]:
    """(base offset, record count) of the first batch on disk."""
    for segment in log.segments:
        for _, header in segment.batches.headers(0, segment.size) if segment.size else ():
            return header.base_offset, header.count
    raise AssertionError("the log is empty")


def test_an_empty_batch_does_not_count_for_times_but_keeps_its_producer_young(log: Log) -> None:
    late = build_batch(
        [Record(0, NOW + 5000, b"a", b"old", ())], producer_id=7, producer_epoch=0, base_sequence=0
    )
    log.append(memoryview(late), 0, NOW)
    log.commit()
    log.advance_high_watermark(1)
    pad(log, b"pad")
    append(log, [(b"a", b"new")])
    pad(log, b"more")
    compacted(log)
    assert first_batch(log) == (0, 0)
    found = max_timestamp(log)
    assert found is not None
    assert found[1] == NOW
    assert offset_for_time(log, NOW + 1) is None
    header = next(iter(log.segments[0].batches.headers(0, log.segments[0].size)))[1]
    assert header.max_timestamp == NOW + 5000


def test_segments_of_which_nothing_is_left_do_not_stop_a_reader(log: Log, tmp_path: Path) -> None:
    for _ in range(12):
        append(log, [(b"a", b"x" * 300)])
    pad(log, b"pad")
    compacted(log)
    keys = [record.key for record in contents(log)]
    assert keys.count(b"a") == 1
    piece = log.read(0, 1 << 20, log.high_watermark)
    assert piece is not None
    found = offset_for_time(log, 0)
    assert found is not None
    assert found[0] == 11


@pytest.mark.parametrize("wanted", [NOW - 5, NOW + 3, NOW + 40, NOW + 71])
def test_times_are_found_exactly_in_compacted_segments(log: Log, wanted: int) -> None:
    log.config = LogConfig.parse({"index.interval.bytes": "0"}, COMPACT)
    for number in range(80):
        record = Record(0, NOW + number, b"k%d" % (number % 50), b"x" * 40, ())
        log.append(memoryview(build_batch([record])), 0, NOW)
        log.commit()
    log.advance_high_watermark(log.log_end)
    compacted(log)
    expected = next(record for record in contents(log) if record.timestamp >= wanted)
    found = offset_for_time(log, wanted)
    assert found is not None
    assert found[:2] == (expected.offset, expected.timestamp)


def test_damage_is_not_given_a_new_checksum(log: Log) -> None:
    pad(log, b"pad", 20)
    flush(log)
    path = log.segments[1].path
    with open(path, "r+b") as file:
        file.seek(80)
        byte = file.read(1)[0]
        file.seek(80)
        file.write(bytes([byte ^ 1]))
    chosen = candidate(log, NOW)
    assert chosen is not None
    outcome = compact(job_of(chosen, "tag", NOW, 1 << 16, 1e15, 0))
    assert outcome.is_corrupt
    assert path in outcome.error
    assert "position 0" in outcome.error


def test_a_segment_that_would_stay_the_same_is_not_replaced(log: Log, tmp_path: Path) -> None:
    pad(log, b"pad", 30)
    log.config = LogConfig.parse({"segment.bytes": "200"}, COMPACT)
    inodes = {segment.path: os.stat(segment.path).st_ino for segment in log.segments[:-1]}
    compacted(log)
    assert {segment.path: os.stat(segment.path).st_ino for segment in log.segments[:-1]} == inodes
    assert not list((tmp_path / "t-0").glob("*.cleaned"))


def test_a_log_cut_below_what_was_clean_is_dirty_from_there(log: Log) -> None:
    pad(log, b"pad", 20)
    compacted(log)
    assert log.clean_end > 10
    truncate_to(log, 10)
    assert log.clean_end <= 10


def test_both_policies_together_delete_old_segments_and_compact_the_rest(store: LogStore) -> None:
    config = LogConfig.parse({"cleanup.policy": "compact,delete", "retention.ms": "5000"}, COMPACT)
    log = store.create("both", 0, uuid.uuid4(), config)
    for number in range(40):
        record = Record(0, NOW + 1000 * number, b"k%d" % (number % 4), b"x" * 80, ())
        log.append(memoryview(build_batch([record])), 0, NOW + 1000 * number)
        log.commit()
    log.advance_high_watermark(log.log_end)
    compacted(log, NOW + 40_000)
    clean = [record.key for record in contents(log) if record.offset < log.clean_end]
    assert len(clean) == len(set(clean))
    assert delete_expired(log, NOW + 44_000)
    assert all(record.timestamp >= NOW + 37_000 for record in contents(log))
    assert delete_records_before(log, log.high_watermark) == log.high_watermark
    assert candidate(log, NOW + 44_000) is None


def test_a_record_without_a_key_is_refused_but_one_of_old_times_just_goes(store: LogStore) -> None:
    log = store.create("plain", 0, uuid.uuid4(), LogConfig(segment_bytes=400))
    keyless = build_batch([Record(0, NOW, None, b"x" * 60, ())])
    log.append(memoryview(keyless), 0, NOW)
    log.commit()
    log.config = COMPACT
    with pytest.raises(InvalidRecord):
        log.append(memoryview(build_batch([Record(0, NOW, None, b"x", ())])), 0, NOW)
    pad(log, b"pad", 20)
    compacted(log)
    assert None not in {record.key for record in contents(log)}


def test_the_last_batch_stays_if_only_to_say_where_the_log_ends(log: Log) -> None:
    pad(log, b"p")
    # Written before the topic was compacted, so without a key.
    log.config = replace(COMPACT, cleanup_policy=("delete",))
    append(log, [(None, b"v")])  # type: ignore[list-item]
    log.config = COMPACT
    end = log.log_end

    def close_and_compact(days: int) -> list[tuple[int, int]]:
        assert roll_if_due(log, NOW + days * DAY)
        compacted(log, NOW + days * DAY)
        return [
            (header.last_offset + 1, header.count)
            for segment in log.segments
            if segment.size
            for _, header in batches(os.pread(segment.open().fd, segment.size, 0))
        ]

    assert close_and_compact(400)[-1] == (end, 0)
    # Once something follows, it is of no use.
    append(log, [(b"n", b"v")])
    after = close_and_compact(800)
    assert after[-1] == (end + 1, 1)
    assert end not in dict(after)
