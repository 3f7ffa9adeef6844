"""Large batches are written before they are appended, and nothing shows of those that are not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from moldau.log.config import LogConfig
from moldau.log.errors import LogError, OutOfOrderSequence, StorageError
from moldau.log.log import Log
from moldau.log.lookup import verify
from moldau.log.prewriting import begin_prewrite
from moldau.log.replica import append_replica
from moldau.log.retention import roll_if_due
from moldau.log.segments.prewrite import PIECE, Prewrite
from moldau.log.store.store import LogStore
from moldau.log.truncation import restart_at, truncate_to
from tests.log.making import NOW, TERM, batch_of, make_log, offsets_of, open_store, put, read_all

CONFIG = LogConfig.parse({"max.message.bytes": "100000000"}, LogConfig())
SIZE = 5 * PIECE


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    store = open_store(tmp_path, CONFIG)
    yield store
    store.close()


@pytest.fixture
def log(store: LogStore) -> Log:
    return make_log(store)


def begun(log: Log, batch: memoryview) -> Prewrite:
    found = begin_prewrite(log, batch, NOW)
    assert found is not None
    return found


def size_on_disk(log: Log) -> int:
    return os.stat(log.segments[-1].batches.path).st_size


def refuse_to_write(*given: object) -> int:
    raise AssertionError("the records are written already")


def test_the_append_writes_only_the_header_of_what_was_written_before(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(log, batch_of(2))
    large = batch_of(size=SIZE)
    writing = begun(log, large)
    writing.run()
    assert writing.is_done
    assert log.log_end == 2
    assert offsets_of(log) == [0]

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse_to_write)
        assert put(log, large) == [2]
    writing.end()
    assert put(log, batch_of(1)) == [3]
    assert offsets_of(log) == [0, 2, 3]
    verify(log, 2)


def test_what_a_leader_sent_is_prewritten_too(
    store: LogStore, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = batch_of(size=SIZE)
    put(store.create("leader", 0, UUID(int=8)), large)
    writing = begun(log, large)
    writing.run()
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse_to_write)
        append_replica(log, large, 0, TERM, NOW)
        log.commit()
    writing.end()
    assert offsets_of(log) == [0]
    verify(log, 0)


def test_a_batch_that_does_not_fit_goes_to_the_next_segment(tmp_path: Path) -> None:
    large = batch_of(size=SIZE)
    limit = {"segment.bytes": str(len(large) + 50)}
    store = open_store(tmp_path, LogConfig.parse(limit, CONFIG))
    log = make_log(store)
    put(log, batch_of(2))
    writing = begun(log, large)
    writing.run()
    assert put(log, large) == [2]
    writing.end()
    assert [segment.base for segment in log.segments] == [0, 2]
    store.close()


def test_a_crash_before_the_append_leaves_nothing(tmp_path: Path) -> None:
    """Not even of a batch that is whole but for its header: it may repeat one that was taken."""
    store = open_store(tmp_path, CONFIG)
    log = make_log(store)
    large = batch_of(size=SIZE, producer_id=1)
    put(log, large)
    begun(log, batch_of(size=SIZE, producer_id=1)).run()
    assert size_on_disk(log) == 2 * log.segments.size
    store.abandon()
    store = open_store(tmp_path, CONFIG)
    log = store.logs["t", 0]
    assert log.log_end == 1
    assert size_on_disk(log) == log.segments.size == len(large)
    store.close()


def test_a_batch_that_is_refused_after_all_is_cut_off(log: Log) -> None:
    put(log, batch_of(producer_id=1))
    large = batch_of(size=SIZE, producer_id=1, sequence=7)
    writing = begun(log, large)
    writing.run()
    with pytest.raises(OutOfOrderSequence):
        log.append(large, 0, NOW)
    log.commit()
    writing.end()
    assert size_on_disk(log) == log.segments.size
    assert put(log, batch_of(producer_id=1, sequence=1)) == [1]
    assert offsets_of(log) == [0, 1]


def test_a_full_disk_in_the_middle_is_reported_by_the_append(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(log, batch_of())
    large = batch_of(size=SIZE)
    room = [2 * PIECE]
    pwrite, write = os.pwrite, os.write

    def fill(size: int) -> int:
        """How much of it the disk still takes."""
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken = min(size, room[0])
        room[0] -= taken
        return taken

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[: fill(len(data))], at))
        patched.setattr(os, "write", lambda fd, data: write(fd, data[: fill(len(data))]))
        writing = begun(log, large)
        writing.run()
        assert not writing.is_done
        assert size_on_disk(log) > log.segments.size
        log.append(large, 0, NOW)
        with pytest.raises(StorageError):
            log.commit()
    writing.end()
    assert size_on_disk(log) == log.segments.size
    assert put(log, batch_of()) == [1]
    assert offsets_of(log) == [0, 1]


def another_appends(store: LogStore, log: Log) -> None:
    put(log, batch_of(3))


def leadership_is_lost(store: LogStore, log: Log) -> None:
    truncate_to(log, 1)
    batch = batch_of(3)
    other = store.create("other", 0, log.topic_id)  # type: ignore[arg-type]
    put(other, batch_of(1), batch)
    append_replica(log, batch, 1, TERM, NOW)
    log.commit()


def it_begins_anew(store: LogStore, log: Log) -> None:
    restart_at(log, 4)


def it_rolls(store: LogStore, log: Log) -> None:
    log.config = LogConfig.parse({"segment.ms": "1"}, CONFIG)
    assert roll_if_due(log, NOW + 10**12)


def it_is_deleted_and_made_anew(store: LogStore, log: Log) -> None:
    store.delete("t", 0)
    put(make_log(store), batch_of(4))


def the_store_closes(store: LogStore, log: Log) -> None:
    store.close()


@pytest.mark.parametrize(
    "happens",
    [
        another_appends,
        leadership_is_lost,
        it_begins_anew,
        it_rolls,
        it_is_deleted_and_made_anew,
        the_store_closes,
    ],
)
def test_what_happens_to_the_log_meanwhile_stops_the_thread_for_good(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[LogStore, Log], None],
) -> None:
    """In the middle, with the thread just before its next piece; then the append comes too."""
    store = open_store(tmp_path, CONFIG)
    log = make_log(store)
    put(log, batch_of(1))
    large = batch_of(size=SIZE)
    writing = begun(log, large)
    in_the_middle, go_on = threading.Event(), threading.Event()
    pieces = []
    pwrite = os.pwrite

    def stop_in_the_middle(fd: int, data: bytes, position: int) -> int:
        pieces.append(position)
        written = pwrite(fd, data, position)
        in_the_middle.set()
        return written

    monkeypatch.setattr(os, "pwrite", stop_in_the_middle)
    lock = writing._lock

    class Gate:
        def __enter__(self) -> None:
            if threading.current_thread() is thread and in_the_middle.is_set():
                go_on.wait(60)
            lock.acquire()

        def __exit__(self, *given: object) -> None:
            lock.release()

    writing._lock = Gate()  # type: ignore[assignment]
    thread = threading.Thread(target=writing.run)
    thread.start()
    assert in_the_middle.wait(60)
    happens(store, log)
    go_on.set()
    thread.join(60)
    assert len(pieces) == 1
    assert not writing.is_done
    try:
        log.append(large, 0, NOW)
        log.commit()
    except LogError:
        assert log.offline is not None
    writing.end()
    if store.logs and happens is not the_store_closes:
        now = store.logs["t", 0]
        ends = now.log_end
        found = read_all(now, max_bytes=2 * SIZE)
        store.close()
    else:
        ends, found = log.log_end, b""
    store = open_store(tmp_path, CONFIG)
    again = store.logs["t", 0]
    assert again.log_end == ends
    if found:
        assert read_all(again, max_bytes=2 * SIZE) == found
    for segment in again.segments:
        assert os.stat(segment.batches.path).st_size == segment.batches.size
    store.close()
