"""Transactions in a log that comes back: after a stop, a crash, and damage to its indexes."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from moldau.log.log import Log
from moldau.log.retention import delete_records_before
from moldau.log.store.store import LogStore
from moldau.log.truncation import restart_at
from tests.log.making import make_log, open_store
from tests.log.transactions.transacting import Transactional, see_all, values
from tests.log.transactions.transactional import (
    SMALL,
    copy_folder,
    flush,
    kept,
    mixed,
    nothing,
    snapshots_gone,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    opened = open_store(tmp_path / "data", SMALL)
    yield opened
    opened.close()


@pytest.fixture
def log(store: LogStore) -> Log:
    return make_log(store)


def indexes_gone(folder: Path) -> None:
    for path in folder.glob("*.txnindex"):
        path.unlink()


def indexes_torn(folder: Path) -> None:
    for path in folder.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-5])


def indexes_short(folder: Path) -> None:
    for path in folder.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-34])


def indexes_wrong(folder: Path) -> None:
    for path in folder.glob("*.txnindex"):
        path.write_bytes(b"\xff" * path.stat().st_size)


def indexes_of_another_version(folder: Path) -> None:
    for path in folder.glob("*.txnindex"):
        path.write_bytes(b"\x00\x01" + path.read_bytes()[2:])


def indexes_empty(folder: Path) -> None:
    for path in folder.glob("*.txnindex"):
        path.write_bytes(b"")


def indexes_of_the_next_segment(folder: Path) -> None:
    paths = sorted(folder.glob("*.txnindex"))
    for path, following in pairwise(paths):
        path.write_bytes(following.read_bytes())


def indexes_of_the_segment_before(folder: Path) -> None:
    paths = sorted(folder.glob("*.txnindex"), reverse=True)
    for path, before in pairwise(paths):
        path.write_bytes(before.read_bytes())


DAMAGE: list[Callable[[Path], None]] = [
    nothing,
    snapshots_gone,
    indexes_gone,
    indexes_torn,
    indexes_short,
    indexes_wrong,
    indexes_of_another_version,
    indexes_empty,
    indexes_of_the_next_segment,
    indexes_of_the_segment_before,
]


@pytest.mark.parametrize(
    ("left_by", "damage"),
    [
        *(("a crash", damage) for damage in DAMAGE),
        *(("a crash after a flush", damage) for damage in DAMAGE),
        # After a clean stop a log without snapshots is one without producers, as in Kafka.
        *(("a clean stop", damage) for damage in DAMAGE if damage is not snapshots_gone),
    ],
)
def test_a_restart_shows_the_same(
    tmp_path: Path, damage: Callable[[Path], None], left_by: str
) -> None:
    """A crash before anything was forced to disk may leave any of the small files.

    What lies before the recovery point is not read again, and yet no index may be missed there.
    """
    is_clean = left_by == "a clean stop"
    store = open_store(tmp_path / "data", SMALL)
    log = make_log(store)
    expected = mixed(log)
    still_open = Transactional(log, 4)
    start = still_open.write((b"k", b"open"))
    see_all(log)
    before = log.aborted_transactions(0, log.log_end)
    if left_by == "a crash after a flush":
        flush(log)
        assert log.flushed == log.log_end
        store.checkpoint()
    if is_clean:
        store.close()
    left = tmp_path / "left"
    copy_folder(tmp_path / "data", left)
    if not is_clean:
        store.close()
    damage(left / "t-0")
    again = open_store(left, SMALL)
    log = again.logs["t", 0]
    see_all(log)
    assert log.last_stable == start
    assert log.aborted_transactions(0, log.log_end) == before
    assert kept(log) == expected
    still_open.log = log
    still_open.end(commits=True)
    see_all(log)
    assert kept(log) == [*expected, b"open"]
    again.close()


def test_a_vanished_index_is_found_whatever_happened_since_the_checkpoint(tmp_path: Path) -> None:
    """The oldest segment is gone, another transaction was aborted, and an index vanished."""
    store = open_store(tmp_path / "data", SMALL)
    log = make_log(store)
    mixed(log)
    flush(log)
    store.checkpoint()
    delete_records_before(log, log.segments[1].base)
    producer = Transactional(log, 7)
    producer.write((b"k", b"late"))
    producer.end(commits=False)
    see_all(log)
    first = log.log_start
    expected, before = kept(log), log.aborted_transactions(first, log.log_end)
    left = tmp_path / "left"
    copy_folder(tmp_path / "data", left)
    store.close()
    vanished = [
        path for path in sorted((left / "t-0").glob("*.txnindex")) if int(path.stem) >= first
    ][1]
    vanished.unlink()
    again = open_store(left, SMALL)
    log = again.logs["t", 0]
    see_all(log)
    assert vanished.exists()
    assert (kept(log), log.aborted_transactions(first, log.log_end)) == (expected, before)
    again.close()


def test_a_checkpoint_of_aborted_transactions_that_cannot_be_read_is_ignored(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path, SMALL)
    log = make_log(store)
    expected = mixed(log)
    store.close()
    path = tmp_path / "aborted-transactions-checkpoint"
    assert path.read_text().splitlines()[2].startswith("t 0 ")
    for content in (b"\xff", b"0\n1\nt 0 x 1\n", b"7\n0\n", b"0\n1\nt 0 0\n"):
        path.write_bytes(content)
        store = open_store(tmp_path, SMALL)
        log = store.logs["t", 0]
        see_all(log)
        assert kept(log) == expected
        store.close()


def test_a_folder_without_aborted_transactions_has_no_checkpoint_of_them(
    store: LogStore, log: Log
) -> None:
    path = Path(store.folder) / "aborted-transactions-checkpoint"
    producer = Transactional(log, 1)
    producer.write((b"k", b"v"))
    producer.end(commits=True)
    store.checkpoint()
    assert not path.exists()
    producer.write((b"k", b"v"))
    producer.end(commits=False)
    store.checkpoint()
    assert path.read_text() == "0\n1\nt 0 0 1\n"
    restart_at(log, log.log_end)
    store.checkpoint()
    assert path.read_text() == "0\n0\n"


def test_an_index_that_says_more_than_the_log_is_made_anew(tmp_path: Path) -> None:
    """A version that did not know it has cut the log, and written something else."""
    store = open_store(tmp_path, SMALL)
    log = make_log(store)
    producer = Transactional(log, 1)
    producer.write((b"k", b"a"))
    producer.end(commits=False)
    path = Path(log.segments.last.path).with_suffix(".txnindex")
    before = path.read_bytes()
    start = producer.write((b"k", b"b"))
    store.close()
    path.write_bytes(before + struct.pack(">hqqqq", 0, 1, start, start + 7, start + 8))
    store = open_store(tmp_path, SMALL)
    log = store.logs["t", 0]
    see_all(log)
    assert log.last_stable == start
    producer.log = log
    producer.end(commits=True)
    see_all(log)
    assert log.aborted_transactions(0, log.log_end) == [(1, 0)]
    assert kept(log) == [b"b"]
    store.close()


@pytest.mark.parametrize("damage", [indexes_torn, indexes_wrong])
def test_damage_after_a_flush_is_found_by_whoever_begins_with_it(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Only the last index is hit, and the recovery point lies before its entries."""
    store = open_store(tmp_path / "data", SMALL)
    log = make_log(store)
    expected = mixed(log)
    flush(log)
    store.prepare_checkpoint()()
    producer = Transactional(log, 7)
    producer.write((b"k", b"gone"))
    producer.end(commits=False)
    see_all(log)
    left = tmp_path / "left"
    copy_folder(tmp_path / "data", left)
    store.close()
    last = max((left / "t-0").glob("*.txnindex"))
    aside = tmp_path / "aside"
    aside.mkdir()
    shutil.move(last, aside / last.name)
    damage(aside)
    shutil.move(aside / last.name, last)
    again = open_store(left, SMALL)
    log = again.logs["t", 0]
    see_all(log)
    assert kept(log)[: len(expected)] == expected
    assert b"gone" not in values(log)
    again.close()


def test_a_crash_between_a_marker_and_its_index_entry_loses_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data", SMALL)
    log = make_log(store)
    producer = Transactional(log, 1)
    producer.write((b"k", b"a"))
    producer.end(commits=False)
    flush(log)
    store.prepare_checkpoint()()
    producer.write((b"k", b"b"))
    index = log.segments.last.aborted
    assert index is not None
    producer.end(commits=False)
    left = tmp_path / "left"
    copy_folder(tmp_path / "data", left)
    path = left / "t-0" / os.path.basename(index.path)
    path.write_bytes(path.read_bytes()[:34])
    store.close()
    again = open_store(left, SMALL)
    log = again.logs["t", 0]
    see_all(log)
    assert log.aborted_transactions(0, log.log_end) == [(1, 0), (1, 2)]
    again.close()


def test_a_marker_that_was_lost_with_the_tail_leaves_the_transaction_open(tmp_path: Path) -> None:
    """The index may have reached the disk before the marker: it must not say more than the log."""
    store = open_store(tmp_path / "data", SMALL)
    log = make_log(store)
    producer = Transactional(log, 1)
    producer.write((b"k", b"a"))
    flush(log)
    size = log.segments.last.size
    producer.end(commits=False)
    left = tmp_path / "left"
    copy_folder(tmp_path / "data", left)
    store.close()
    os.truncate(left / "t-0" / "00000000000000000000.log", size)
    again = open_store(left, SMALL)
    log = again.logs["t", 0]
    see_all(log)
    assert (log.log_end, log.last_stable) == (1, 0)
    assert log.aborted_transactions(0, 1) == []
    assert not (left / "t-0" / "00000000000000000000.txnindex").exists()
    producer.log = log
    producer.end(commits=True)
    see_all(log)
    assert kept(log) == [b"a"]
    again.close()


def test_an_index_file_is_forced_to_disk_with_its_marker(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Transactional(log, 1)
    producer.write((b"k", b"a"))
    flush(log)
    producer.end(commits=False)
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    flush(log)
    assert f"{log.folder}/00000000000000000000.txnindex" in synced
    assert log.folder in synced


@pytest.mark.parametrize("commits", [True, False])
def test_a_restart_still_waits_for_a_marker_that_others_may_lack(
    tmp_path: Path, commits: bool
) -> None:
    """The snapshot of producers, which is taken at the end, does not tell of the transaction."""
    store = open_store(tmp_path)
    log = make_log(store)
    producer = Transactional(log, 1)
    producer.write((b"k", b"earlier"))
    producer.end(commits=True)
    begun = log.log_end
    producer.write((b"k", b"last"))
    log.advance_high_watermark(log.log_end)
    producer.end(commits=commits)
    assert log.last_stable == begun
    store.close()
    for _ in range(2):
        store = open_store(tmp_path)
        (log,) = store.logs.values()
        assert (log.high_watermark, log.log_end) == (begun + 1, begun + 2)
        assert log.last_stable == begun
        store.close()
    store = open_store(tmp_path)
    (log,) = store.logs.values()
    log.advance_high_watermark(log.log_end)
    assert log.last_stable == log.log_end
    store.close()


@pytest.mark.parametrize("byte", [9, 17, 25], ids=["producer", "first offset", "marker"])
def test_a_wrong_bit_in_an_index_is_found_after_a_crash(tmp_path: Path, byte: int) -> None:
    """Though all that it says could be so, by itself."""
    store = open_store(tmp_path / "before", SMALL)
    log = make_log(store)
    expected = mixed(log)
    flush(log)
    store.checkpoint()
    before = log.aborted_transactions(0, log.log_end)
    copy_folder(tmp_path / "before", tmp_path / "after")
    store.close()
    path = sorted((tmp_path / "after").rglob("*.txnindex"))[1]
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)
    store = open_store(tmp_path / "after", SMALL)
    (log,) = store.logs.values()
    see_all(log)
    assert (kept(log), log.aborted_transactions(0, log.log_end)) == (expected, before)
    store.close()
