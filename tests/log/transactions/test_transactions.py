"""Transactions in a log: what readers of committed records see, through all that happens to it."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.log.errors import StorageError
from moldau.log.log import Log
from moldau.log.store.store import LogStore
from tests.log.making import make_log, open_store
from tests.log.transactions.transacting import Transactional, committed, see_all
from tests.log.transactions.transactional import SMALL, kept, mixed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    opened = open_store(tmp_path / "data", SMALL)
    yield opened
    opened.close()


@pytest.fixture
def log(store: LogStore) -> Log:
    return make_log(store)


# Reading


def test_readers_of_committed_records_skip_what_was_aborted(log: Log) -> None:
    expected = mixed(log)
    assert kept(log) == expected
    assert kept(log, max_bytes=1) == kept(log, max_bytes=1 << 20) == expected


def test_a_reader_may_begin_anywhere(log: Log) -> None:
    mixed(log)
    everything = committed(log)
    for offset in range(log.log_end):
        later = [record for record in everything if record.offset >= offset]
        assert committed(log, offset) == later


def test_a_fetch_names_only_transactions_of_its_own_range(log: Log) -> None:
    producer = Transactional(log, 1)
    spans = []
    for _ in range(50):
        spans.append((producer.write((b"k", b"v")), producer.end(commits=False)))
    see_all(log)
    for first, last in spans:
        assert log.aborted_transactions(first, last + 1) == [(1, first)]
        assert log.aborted_transactions(last, last + 1) == [(1, first)]
    assert log.aborted_transactions(0, log.log_end) == [(1, first) for first, _ in spans]


def test_the_index_is_kafkas(log: Log) -> None:
    one, two = Transactional(log, 1), Transactional(log, 2)
    one.write((b"k", b"v"))
    two.write((b"k", b"v"))
    two.end(commits=False)
    one.end(commits=False)
    path = Path(log.folder) / "00000000000000000000.txnindex"
    entry = struct.Struct(">hqqqq")
    assert [*entry.iter_unpack(path.read_bytes())] == [(0, 2, 1, 2, 0), (0, 1, 0, 3, 4)]


def test_a_segment_without_aborted_transactions_has_no_index(log: Log) -> None:
    producer = Transactional(log, 1)
    for _ in range(10):
        producer.write((b"k", b"v" * 50))
        producer.end(commits=True)
    producer.end(commits=False)
    assert not [name for name in os.listdir(log.folder) if name.endswith(".txnindex")]


def test_a_marker_above_the_high_watermark_ends_nothing_yet(log: Log) -> None:
    one, two = Transactional(log, 1), Transactional(log, 2)
    one.write((b"k", b"a"))
    two.write((b"k", b"b"))
    see_all(log)
    one.end(commits=True)
    two.end(commits=True)
    assert log.last_stable == 0
    log.advance_high_watermark(3)
    assert log.last_stable == 1
    log.advance_high_watermark(4)
    assert log.last_stable == 4


def test_the_last_stable_offset_follows_the_oldest_open_transaction(log: Log) -> None:
    producers = [Transactional(log, number) for number in range(5)]
    starts = [producer.write((b"k", b"v")) for producer in producers]
    see_all(log)
    for number in (2, 0, 1, 4):
        producers[number].end(commits=bool(number % 2))
        see_all(log)
        ended = {0: 1, 1: 3, 2: 0, 4: 3}[number]
        assert log.last_stable == starts[ended]
    producers[3].end(commits=True)
    see_all(log)
    assert log.last_stable == log.log_end


# A disk that refuses


@pytest.mark.parametrize("what", ["log", "index"])
def test_a_marker_that_could_not_be_written_has_ended_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    before = Transactional(log, 2)
    before.write((b"k", b"x"))
    before.end(commits=False)
    producer = Transactional(log, 1)
    start = producer.write((b"k", b"v"))
    see_all(log)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    producer.stage_end(commits=False)
    with monkeypatch.context() as patch:
        for name in ("write", "writev") if what == "log" else ("pwrite",):
            patch.setattr(os, name, refuse)
        with pytest.raises(StorageError):
            log.commit()
    assert log.log_end == start + 1
    see_all(log)
    assert log.last_stable == start
    assert log.aborted_transactions(0, log.log_end) == [(2, 0)]
    producer.end(commits=True)
    see_all(log)
    assert kept(log) == [b"v"]


def test_ended_transactions_are_noted_in_place(log: Log) -> None:
    """Recovery notes a hundred thousand before the high watermark moves: a copy for each would
    take minutes."""
    noted = None
    for number in range(5):
        producer = Transactional(log, 50 + number)
        producer.write((b"k", b"v"))
        producer.end(commits=bool(number % 2))
        assert log.producers.decided is not None
        assert len(log.producers.decided) == number + 1
        noted = noted or log.producers.decided
        assert log.producers.decided is noted
    log.advance_high_watermark(log.log_end)
    assert log.producers.decided is None
