from __future__ import annotations

import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from moldau.log.config import LogConfig
from moldau.log.epochs import FILE_NAME as EPOCHS_FILE
from moldau.log.errors import StorageError
from moldau.log.flushes.flushing import prepare_flush
from moldau.log.log import Log
from moldau.log.lookup import offset_for_time
from moldau.log.replica import append_replica
from moldau.log.retention import delete_records_before
from moldau.log.store.store import LogStore
from moldau.log.truncation import truncate_to
from moldau.records.batch import batches
from moldau.records.record import Record, build_batch
from tests.log.making import NOW, batch_of, make_log, offsets_of, open_store, put, read_all

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def filled(folder: Path, count: int = 30) -> LogStore:
    """A store with one log of `count` batches in segments of about eleven."""
    store = open_store(folder, CONFIG)
    log = make_log(store)
    for number in range(count):
        batch = batch_of(producer_id=1, sequence=number, timestamp=NOW + number)
        put(log, batch, epoch=number // 9)
    return store


def flush(store: LogStore) -> None:
    for log in store.logs.values():
        pending = prepare_flush(log)
        if pending is not None:
            pending.run()
            pending.done()
    store.checkpoint()


def reopen(folder: Path) -> tuple[LogStore, Log]:
    store = open_store(folder, CONFIG)
    return store, store.logs["t", 0]


def position_of(path: str, offset: int) -> int:
    for position, header in batches(Path(path).read_bytes()):
        if header.last_offset >= offset:
            return position
    raise AssertionError(offset)


def flip(path: str, position: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))


def test_a_clean_stop_needs_no_look_at_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    before = read_all(store.logs["t", 0])
    store.close()
    opened: list[str] = []
    real = os.open

    def watched(path: Any, *rest: Any, **named: Any) -> int:
        if str(path).startswith(str(tmp_path)):
            opened.append(str(path))
        return real(path, *rest, **named)

    monkeypatch.setattr(os, "open", watched)
    store, log = reopen(tmp_path)
    assert not [path for path in opened if path.endswith((".log", ".index", ".timeindex"))]
    assert store.was_clean
    assert read_all(log) == before
    assert log.flushed == log.log_end == 30
    assert log.epochs.entries == [(0, 0), (1, 9), (2, 18), (3, 27)]
    assert log.append(batch_of(producer_id=1, sequence=29), 3, NOW) == (29, -1)
    store.close()


def test_the_clean_marker_is_gone_once_the_store_is_open(tmp_path: Path) -> None:
    filled(tmp_path).close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    store, _ = reopen(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    store.abandon()


def test_a_killed_broker_loses_nothing_that_was_written(tmp_path: Path) -> None:
    store = filled(tmp_path)
    before = read_all(store.logs["t", 0])
    store.abandon()
    store, log = reopen(tmp_path)
    assert read_all(log) == before
    assert store.recovered.cut_bytes == 0
    assert log.epochs.entries == [(0, 0), (1, 9), (2, 18), (3, 27)]
    assert log.append(batch_of(producer_id=1, sequence=28), 3, NOW) == (28, -1)
    assert offset_for_time(log, NOW + 17) == (17, NOW + 17, 1)
    store.close()


def test_a_torn_tail_is_cut_at_the_last_whole_batch_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path)
    path = store.logs["t", 0].segments[-1].path
    store.abandon()
    os.truncate(path, position_of(path, 29) + 40)
    with caplog.at_level(logging.WARNING, "moldau.log"):
        store, log = reopen(tmp_path)
    assert log.log_end == 29
    assert [
        record for record in caplog.records if "t-0: truncated by 40 bytes" in record.getMessage()
    ]
    assert put(log, batch_of(producer_id=1, sequence=29)) == [29]
    assert offsets_of(log) == list(range(30))
    store.close()


def test_damage_in_an_earlier_unflushed_segment_cuts_what_follows(tmp_path: Path) -> None:
    store = filled(tmp_path)
    segment = store.logs["t", 0].segments[1]
    store.abandon()
    flip(segment.path, position_of(segment.path, segment.base + 2) + 65)
    store, log = reopen(tmp_path)
    assert log.log_end == segment.base + 2
    assert offsets_of(log) == list(range(segment.base + 2))
    assert log.epochs.latest == (segment.base + 1) // 9
    store.close()


def test_epochs_that_are_read_again_begin_before_a_gap(tmp_path: Path) -> None:
    """Nobody knows where one began whose first batches are compacted away."""
    store = open_store(tmp_path, CONFIG)
    log = make_log(store)
    for offset, epoch in ((0, 2), (5, 3)):
        batch = build_batch([Record(offset, NOW, b"k", b"v")], leader_epoch=epoch)
        append_replica(log, memoryview(batch), log.log_end, 3, NOW)
        log.commit()
    store.abandon()
    _, log = reopen(tmp_path)
    assert log.epochs.entries == [(2, 0), (3, 1)]


def test_only_what_follows_the_recovery_point_is_checked(tmp_path: Path) -> None:
    store = filled(tmp_path)
    flush(store)
    log = store.logs["t", 0]
    first = log.segments[0].path
    put(log, batch_of(producer_id=1, sequence=30))
    size = log.segments.size
    store.abandon()
    flip(first, 70)
    store, log = reopen(tmp_path)
    assert log.offline is None
    assert log.log_end == 31
    assert store.recovered.checked_bytes < size // 4
    store.close()


def test_damage_before_the_recovery_point_puts_only_that_log_offline(tmp_path: Path) -> None:
    store = filled(tmp_path, 8)
    other = store.create("other", 3, uuid.UUID(int=9))
    put(other, batch_of())
    flush(store)
    path = store.logs["t", 0].segments[0].path
    store.abandon()
    flip(path, position_of(path, 7) + 70)
    store, log = reopen(tmp_path)
    assert log.offline is not None
    assert str(log.offline).startswith(path)
    for call in (
        lambda: log.read(0, 100, 1),
        lambda: log.append(batch_of(), 0, NOW),
        lambda: offset_for_time(log, 0),
        lambda: truncate_to(log, 0),
    ):
        with pytest.raises(StorageError):
            call()
    assert offsets_of(store.logs["other", 3]) == [0]
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    store, log = reopen(tmp_path)
    assert log.offline is not None
    store.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["remove", "empty", "tear", "zero", "junk", "mislead"])
def test_bad_indexes_are_rebuilt(tmp_path: Path, damage: str, clean: bool) -> None:
    store = filled(tmp_path)
    flush(store)
    if clean:
        store.close()
    else:
        store.abandon()
    for path in (tmp_path / "t-0").glob("*index"):
        content = path.read_bytes()
        changed = {
            "remove": None,
            "empty": b"",
            "tear": content[:-3],
            "zero": content + bytes(240),
            "junk": bytes(range(24)) * 5,
            "mislead": content[:4] + b"\0\0\0\7" + content[8:],
        }[damage]
        if changed is None:
            path.unlink()
        elif damage != "mislead" or path.suffix == ".index":
            path.write_bytes(changed)
    store, log = reopen(tmp_path)
    for offset in range(30):
        piece = log.read(offset, 100, 30)
        assert piece is not None
        assert int.from_bytes(os.pread(piece.file.fd, 8, piece.position), "big") == offset
    if damage != "empty":
        assert offset_for_time(log, NOW + 13) == (13, NOW + 13, 1)
    store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_an_offset_that_no_index_could_hold_is_damage(tmp_path: Path, clean: bool) -> None:
    store = open_store(tmp_path, LogConfig(index_interval_bytes=200))
    log = make_log(store)
    for number in range(30):
        put(log, batch_of(producer_id=1, sequence=number, timestamp=NOW + number))
    flush(store)
    put(log, batch_of(producer_id=1, sequence=30, timestamp=NOW + 30))
    (segment,) = log.segments
    if clean:
        store.close()
    else:
        store.abandon()
    # The highest byte but one of the base offset of the last batch, which its checksum leaves out.
    flip(segment.path, position_of(segment.path, 30) + 1)
    for suffix in (".index", ".timeindex"):
        Path(segment.path).with_suffix(suffix).unlink(missing_ok=True)
    store, log = reopen(tmp_path)
    if clean:
        # Nobody looks before somebody asks.
        with pytest.raises(StorageError, match="do not fit the segment"):
            offset_for_time(log, NOW)
    else:
        assert (log.offline, log.log_end) == (None, 30)
        assert offset_for_time(log, NOW + 7) is not None
    store.close()


def test_indexes_rebuilt_by_recovery_are_those_that_were_written(tmp_path: Path) -> None:
    store = filled(tmp_path)
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path / "t-0", crashed / "t-0")
    for path in (crashed / "t-0").glob("*index"):
        path.unlink()
    store.close()
    again = open_store(crashed, CONFIG)
    again.close()
    for path in (tmp_path / "t-0").glob("*index"):
        assert (crashed / "t-0" / path.name).read_bytes() == path.read_bytes()


def test_leftovers_of_interrupted_changes_are_dealt_with(tmp_path: Path) -> None:
    store = filled(tmp_path)
    log = store.logs["t", 0]
    before = read_all(log)
    folder = Path(log.folder)
    base = log.segments[1].base
    store.abandon()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000099.index.deleted",
        "00000000000000000005.log.cleaned",
        "leader-epoch-checkpoint.tmp",
    ):
        (folder / name).write_bytes(b"junk")
    (folder / f"{base:020d}.log.swap").write_bytes(b"belongs to what was being cleaned")
    (folder / "00000000000000000077.index").write_bytes(b"an orphan")
    store, log = reopen(tmp_path)
    assert read_all(log) == before
    left = {path.name for path in folder.iterdir()}
    assert not [name for name in left if name.endswith((".deleted", ".cleaned", ".swap", ".tmp"))]
    assert "00000000000000000077.index" not in left
    store.close()


def test_a_complete_swap_replaces_the_segments_it_covers(tmp_path: Path) -> None:
    store = filled(tmp_path)
    flush(store)
    log = store.logs["t", 0]
    folder = Path(log.folder)
    third = log.segments[2]
    store.close()
    merged = build_batch(
        [Record(third.base - 1, NOW, b"k", b"v")], base_offset=0, last_offset_delta=third.base - 1
    )
    (folder / f"{0:020d}.log.swap").write_bytes(merged)
    store, log = reopen(tmp_path)
    assert [segment.base for segment in log.segments][:2] == [0, third.base]
    assert offsets_of(log) == [0, *range(third.base, 30)]
    store.close()


def test_torn_snapshots_checkpoints_and_epochs_cost_nothing_but_time(tmp_path: Path) -> None:
    store = filled(tmp_path)
    before = read_all(store.logs["t", 0])
    flush(store)
    store.abandon()
    for pattern in ("*checkpoint", "t-0/*.snapshot", "t-0/leader-epoch-checkpoint"):
        for path in tmp_path.glob(pattern):
            path.write_bytes(b"\0\1junk")
    store, log = reopen(tmp_path)
    assert read_all(log) == before
    assert log.epochs.entries == [(0, 0), (1, 9), (2, 18), (3, 27)]
    assert log.append(batch_of(producer_id=1, sequence=29), 3, NOW) == (29, -1)
    store.close()


def test_log_start_survives_a_restart(tmp_path: Path) -> None:
    store = filled(tmp_path)
    delete_records_before(store.logs["t", 0], 15)
    store.checkpoint()
    store.abandon()
    store, log = reopen(tmp_path)
    assert log.log_start == 15
    store.close()
    store, log = reopen(tmp_path)
    assert log.log_start == 15
    store.close()


def test_a_log_that_ends_before_its_start_begins_anew_there(tmp_path: Path) -> None:
    store = filled(tmp_path)
    delete_records_before(store.logs["t", 0], 30)
    store.checkpoint()
    store.abandon()
    for path in (tmp_path / "t-0").glob("*.log"):
        os.truncate(path, 0)
    store, log = reopen(tmp_path)
    assert (log.log_start, log.log_end) == (30, 30)
    assert put(log, batch_of()) == [30]
    store.close()


@pytest.mark.parametrize("from_offset", [3, 2], ids=["behind the new", "in its place"])
@pytest.mark.parametrize("knows_epoch", [True, False])
def test_what_a_power_failure_brings_back_is_known_by_its_epoch(
    tmp_path: Path, from_offset: int, knows_epoch: bool
) -> None:
    """Otherwise its leader takes it for what it wrote itself in the epoch of the file."""
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, batch_of(), batch_of(), epoch=8)
    put(log, batch_of(), batch_of(), epoch=9)
    path = log.segments.last.path
    before = Path(path).read_bytes()
    truncate_to(log, 2)
    put(log, batch_of(), batch_of(), epoch=12)
    if knows_epoch:
        Path(log.folder, EPOCHS_FILE).write_bytes(log.epochs.encode())
    store.abandon()
    position = position_of(path, from_offset)
    Path(path).write_bytes(Path(path).read_bytes()[:position] + before[position:])
    _, log = reopen(tmp_path)
    assert log.log_end == 4
    assert (log.epochs.latest, log.epochs.latest_start) == (9, from_offset)
