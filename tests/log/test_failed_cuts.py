"""Cuts that fail: a log that was cut only in part is offline, and whole again when it is opened."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from moldau.log.config import LogConfig
from moldau.log.errors import StorageError
from moldau.log.log import Log
from moldau.log.segments.aborted_index import ENTRY_SIZE
from moldau.log.truncation import restart_at, truncate_to
from tests.log.making import NOW, batch_of, make_log, offsets_of, open_store, put
from tests.log.transactions.transacting import Transactional

_CALLS = ("ftruncate", "pread", "preadv", "unlink", "rename", "open")
_CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=80)


class Disk:
    """Refuses the call of this number, and all that follow it or as many as `refusals`."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        refuses_from: int,
        refusals: int = sys.maxsize,
        calls: Sequence[str] = _CALLS,
        error: int = errno.EIO,
    ) -> None:
        self._refused = range(refuses_from, refuses_from + refusals)
        self._error = error
        self._count = 0
        self.refused = False
        for name in calls:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **more: Any) -> Any:
            self._count += 1
            if self._count - 1 in self._refused:
                self.refused = True
                raise OSError(self._error, os.strerror(self._error))
            return call(*given, **more)

        return counted


@pytest.mark.parametrize(
    ("cut", "left"), [(lambda log: truncate_to(log, 3), 3), (lambda log: restart_at(log, 50), 0)]
)
def test_a_log_that_cannot_be_cut_to_the_end_is_offline_until_it_is_opened_again(
    tmp_path: Path, cut: Callable[[Log], None], left: int
) -> None:
    refusals = 0
    for number in range(1000):
        folder = tmp_path / str(number)
        store = open_store(folder, _CONFIG)
        log = make_log(store)
        put(log, *(batch_of(size=60, producer_id=1, sequence=each) for each in range(8)))
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, number)
            failed = False
            try:
                cut(log)
            except StorageError:
                failed = True
        if log.offline is not None:
            assert failed
            refusals += 1
        else:
            # Nothing was cut, or everything that was to be.
            assert len(offsets_of(log)) == (8 if failed else left)
        store.abandon()
        store = open_store(folder, _CONFIG)
        again = store.logs["t", 0]
        assert again.offline is None
        cut(again)
        assert len(offsets_of(again)) == left
        put(again, batch_of(producer_id=1, sequence=left))
        store.close()
        if not disk.refused:
            break
    assert not failed
    assert refusals > 2


def test_a_log_is_whole_when_nothing_could_be_read_for_a_moment_before_it_was_cut(
    tmp_path: Path,
) -> None:
    """Producers from a snapshot and the batches behind it, batches and indexes of the segment."""
    config = LogConfig(segment_bytes=1400, index_interval_bytes=80)
    refusals = 0
    for number in range(1000):
        store = open_store(tmp_path / str(number), config)
        log = make_log(store)
        for each in range(16):
            put(log, batch_of(size=60, producer_id=1, sequence=each))
            log.advance_high_watermark(log.log_end)
        assert log.segments.last.base < 13
        store.close()
        store = open_store(tmp_path / str(number), config)
        log = store.logs["t", 0]
        log.advance_high_watermark(log.log_end)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, number, 1, ["read", "pread"], errno.ENOMEM)
            try:
                truncate_to(log, 13)
            except StorageError:
                refusals += 1
                assert log.offline is None
                assert offsets_of(log) == list(range(16))
                # Whoever is elected meanwhile knows what the producer has written.
                known = log.producers.get(1)
                assert known is not None
                assert known.batches[-1].last_sequence == 15
        truncate_to(log, 13)
        assert offsets_of(log) == list(range(13))
        put(log, batch_of(producer_id=1, sequence=13))
        store.close()
        if not disk.refused:
            break
    assert refusals > 4


def test_a_log_is_offline_when_the_index_of_what_a_cut_leaves_is_damaged(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = make_log(store)
    for number in range(3):
        producer = Transactional(log, 7 + number)
        producer.write((b"k", b"v"))
        producer.end(commits=False)
    (index,) = (tmp_path / "t-0").glob("*.txnindex")
    with index.open("r+b") as file:
        # The second of three entries, which becomes the last one.
        file.seek(ENTRY_SIZE)
        file.write(b"\xff")

    with pytest.raises(StorageError, match="an entry is"):
        truncate_to(log, 4)

    # Were it not, what a leader sends would be written behind what was to be cut.
    assert log.offline is not None
    with pytest.raises(StorageError):
        log.append(batch_of(), 0, NOW)
    store.abandon()
    again = open_store(tmp_path).logs["t", 0]
    assert again.offline is None
    truncate_to(again, 4)
    assert offsets_of(again) == [0, 1, 2, 3]
