"""Writes that fail: nothing of them can be read, and the next one goes on after what was whole."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from typing import Any

import pytest

from moldau.log.errors import (
    StorageError,
)
from moldau.log.flushes.flushing import close
from moldau.log.log import Log
from moldau.log.store.store import LogStore
from tests.log.making import (
    NOW,
    batch_of,
    configured,
    offsets_of,
    put,
    read_all,
)

# A disk that refuses


def refuse(monkeypatch: pytest.MonkeyPatch, after: int = 0, code: int = errno.ENOSPC) -> None:
    """Let writes take `after` bytes more, in pieces, and then fail."""
    left = [after]
    real, real_writev, own = os.write, os.writev, threading.get_ident()

    def writev(fd: int, parts: Any) -> int:
        # Other threads of this process may be those of brokers.
        if threading.get_ident() != own:
            return real_writev(fd, parts)
        data = b"".join(bytes(part) for part in parts)[: min(left[0], 50)]
        if not data:
            raise OSError(code, os.strerror(code))
        left[0] -= len(data)
        return real(fd, data)

    monkeypatch.setattr(os, "writev", writev)
    monkeypatch.setattr(os, "write", lambda fd, part: writev(fd, [part]))


@pytest.mark.parametrize("after", [0, 10, 100, 150])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_refused_write_leaves_nothing_behind(log: Log, after: int, code: int) -> None:
    put(log, batch_of(producer_id=1, sequence=0))
    before = read_all(log)
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, after, code)
        log.append(batch_of(producer_id=1, sequence=1), 3, NOW)
        log.append(batch_of(producer_id=2, sequence=0), 3, NOW)
        with pytest.raises(StorageError) as caught:
            log.commit()
        assert caught.value.errno == code
    assert log.log_end == 1
    assert log.epochs.latest == 0
    assert log.producers.get(2) is None
    assert os.path.getsize(log.segments[-1].path) == len(before)
    assert put(log, batch_of(producer_id=1, sequence=1)) == [1]
    assert read_all(log).startswith(before)


def test_short_writes_are_carried_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, after=10**9)
    batches = [batch_of(size=size) for size in (10, 100, 1, 60)]
    put(log, *batches)
    put(log, batch_of(size=500))
    assert read_all(log).startswith(b"".join(map(bytes, batches)))
    assert offsets_of(log) == [0, 1, 2, 3, 4]


def test_more_batches_than_the_system_takes_at_once_are_written(log: Log) -> None:
    put(log, *[batch_of() for _ in range(2500)])
    assert offsets_of(log) == list(range(2500))


def fail_and_leave_a_torn_end(log: Log) -> None:
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, after=20)

        def ftruncate(fd: int, size: int) -> None:
            raise OSError(errno.EIO, "broken")

        patch.setattr(os, "ftruncate", ftruncate)
        log.append(batch_of(), 0, NOW)
        with pytest.raises(StorageError):
            log.commit()


def test_what_could_not_be_cut_off_is_cut_before_the_next_write(log: Log) -> None:
    put(log, batch_of())
    fail_and_leave_a_torn_end(log)
    put(log, batch_of())
    assert offsets_of(log) == [0, 1]


def test_a_segment_is_closed_without_what_a_failed_write_left_in_it(log: Log) -> None:
    put(log, batch_of())
    fail_and_leave_a_torn_end(log)
    first = log.segments[0]
    assert os.path.getsize(first.path) > first.size
    configured(log, segment_ms=1)
    # The next write goes to another segment, and would cut only that.
    put(log, batch_of(timestamp=NOW + 10))
    assert len(log.segments) == 2
    assert os.path.getsize(first.path) == first.size


def test_a_closed_log_has_nothing_that_a_failed_write_left_in_it(log: Log) -> None:
    put(log, batch_of())
    fail_and_leave_a_torn_end(log)
    segment = log.segments[0]
    close(log)
    assert os.path.getsize(segment.path) == segment.size


def test_a_failed_roll_fails_the_whole_commit(log: Log) -> None:
    configured(log, segment_bytes=200)
    put(log, batch_of(producer_id=1, sequence=0))
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, after=0)
        log.append(batch_of(size=40, producer_id=1, sequence=1), 0, NOW)
        for _ in range(2):
            with pytest.raises(StorageError):
                log.append(batch_of(size=40), 0, NOW)
        with pytest.raises(StorageError):
            log.commit()
        log.commit()
    assert log.log_end == 1
    put(log, batch_of(size=40, producer_id=1, sequence=1), batch_of(size=40))
    assert offsets_of(log) == [0, 1, 2]


def test_a_write_that_fails_after_a_roll_takes_the_roll_back(log: Log) -> None:
    configured(log, segment_bytes=300)
    put(log, batch_of(), batch_of(size=20))
    before = read_all(log)
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, after=110)
        log.append(batch_of(size=20), 0, NOW)
        log.append(batch_of(size=60), 0, NOW)
        assert len(log.segments) == 2
        with pytest.raises(StorageError):
            log.commit()
    assert log.log_end == 2
    assert read_all(log) == before
    assert os.path.getsize(log.segments[-1].path) == len(before)
    put(log, *[batch_of(size=60) for _ in range(3)])
    assert offsets_of(log) == [0, 1, 2, 3, 4]


def test_a_deleted_log_takes_nothing_however_often_it_is_asked(store: LogStore, log: Log) -> None:
    put(log, batch_of())
    log.append(batch_of(), 0, NOW)
    store.delete("t", 0)
    again = store.create("t", 0, uuid.UUID(int=8))
    for _ in range(3):
        with pytest.raises(StorageError):
            log.commit()
        with pytest.raises(StorageError):
            log.append(batch_of(), 0, NOW)
    # The files have the names of the other one's now.
    put(again, batch_of())
    assert offsets_of(again) == [0]
