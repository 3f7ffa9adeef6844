"""Looking at files: whatever lies there, it ends with an answer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.compaction.throttle import Orphaned, Throttle
from moldau.log.errors import StorageError
from moldau.log.inspections.inspection import Damage, check_log, log_folders, walk
from tests.log.making import batch_of, make_log, open_store, put


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.log.inspections.inspection._LOOK_AGAIN_S", 0)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 3))
def test_any_bytes_are_batches_or_damage(
    tmp_path_factory: pytest.TempPathFactory, rubbish: bytes, index: bytes, times: bytes, good: int
) -> None:
    folder = tmp_path_factory.mktemp("t") / "t-0"
    folder.mkdir()
    content = b"".join(bytes(batch_of(1)) for _ in range(good)) + rubbish
    (folder / "00000000000000000000.log").write_bytes(content)
    (folder / "00000000000000000000.index").write_bytes(index)
    (folder / "00000000000000000000.timeindex").write_bytes(times)
    report = check_log(str(folder))
    data_damage = [found for found in report.damage if not found.heals]
    assert bool(data_damage) == (bool(rubbish) or good > 1)
    assert report.segments[0].batches == good


def test_what_a_log_wrote_is_sound(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, *(batch_of(3, size=200) for _ in range(100)))
    store.close()
    [folder] = log_folders(str(tmp_path))
    report = check_log(folder)
    assert report.damage == []
    assert sum(segment.records for segment in report.segments) == 300


def test_a_batch_that_is_being_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = bytes(batch_of(1))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch + batch[:50])
    monkeypatch.setattr(
        "moldau.log.inspections.inspection.time.sleep",
        lambda seconds: path.write_bytes(batch + batch),
    )
    steps = list(walk(str(path)))
    assert len(steps) == 2
    assert not any(isinstance(step, Damage) for step in steps)


def test_a_folder_without_logs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no log"):
        log_folders(str(tmp_path))
    with pytest.raises(StorageError):
        log_folders(str(tmp_path / "nowhere"))


def test_a_throttle_sleeps_for_what_it_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))
    throttle = Throttle(1000.0, 0)
    for _ in range(50):
        throttle.count(100)
    assert 4.9 <= clock[0] <= 5.1


def test_a_worker_without_its_broker_ends() -> None:
    throttle = Throttle(1e9, os.getppid() + 1)
    with pytest.raises(Orphaned):
        throttle.count(1)
