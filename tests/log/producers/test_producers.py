"""Producers that are forgotten: by when they wrote, whatever their records are dated."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from moldau.log.replica import append_replica
from moldau.log.store.last_life import CLEAN_MARKER
from moldau.log.truncation import truncate_to
from moldau.records.record import Record, build_batch
from tests.log.making import NOW, TERM, batch_of, make_log, open_store, put

DAY = 24 * 3_600_000
LONG_AGO = NOW - 365 * DAY


def test_the_dates_of_records_do_not_count(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = make_log(store)
    put(
        log,
        batch_of(producer_id=0, timestamp=LONG_AGO),
        batch_of(producer_id=1, timestamp=NOW + 60_000),
    )
    copied = build_batch(
        [Record(2, LONG_AGO, b"k", b"v")], producer_id=2, producer_epoch=0, base_sequence=0
    )
    append_replica(log, memoryview(copied), log.log_end, TERM, NOW)
    log.commit()
    assert log.producers.expire(NOW + DAY - 1, DAY) == []
    for producer_id in range(3):
        again = log.append(batch_of(producer_id=producer_id, timestamp=LONG_AGO), 0, NOW)
        assert again == (producer_id, -1)
    assert log.producers.expire(NOW + DAY, DAY) == [0, 1, 2]
    store.close()


@pytest.mark.parametrize("stop", ["clean", "crash", "crash without snapshots"])
def test_a_restart_does_not_date_producers_by_their_records(tmp_path: Path, stop: str) -> None:
    """A snapshot has the time of the append, a segment file that of its last write."""
    folder = tmp_path / "before"
    store = open_store(folder)
    log = make_log(store)
    before = time.time_ns() // 1_000_000
    put(log, batch_of(producer_id=4, timestamp=LONG_AGO), now_ms=before)
    if stop == "clean":
        store.close()
    elif stop == "crash":
        log.durability.take_snapshot(log.written, log.snapshots, log.producers, log.segments)
    left = tmp_path / "left"
    shutil.copytree(folder, left)
    if stop != "clean":
        store.close()
        assert not (left / CLEAN_MARKER).exists()
    store = open_store(left)
    log = store.logs["t", 0]
    after = time.time_ns() // 1_000_000
    assert log.producers.expire(before + DAY - 1000, DAY) == []
    assert log.append(batch_of(producer_id=4), 0, after) == (0, -1)
    assert log.producers.expire(after + DAY, DAY) == [4]
    store.close()


def test_a_cut_does_not_date_producers_by_their_records(tmp_path: Path) -> None:
    """A follower that cuts its log reads the rest of it again."""
    store = open_store(tmp_path)
    log = make_log(store)
    now_ms = time.time_ns() // 1_000_000
    put(log, batch_of(producer_id=4, timestamp=LONG_AGO), batch_of(), now_ms=now_ms)
    truncate_to(log, 1)
    assert log.producers.expire(now_ms + DAY - 1000, DAY) == []
    assert log.append(batch_of(producer_id=4), 0, now_ms) == (0, -1)
    store.close()
