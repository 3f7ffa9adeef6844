"""The checkpoints of a store: what they promise, and how they are replaced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from moldau.log.errors import StorageError
from moldau.log.files.checkpoint import read_offsets
from moldau.log.store.checkpoints import RECOVERY_POINTS
from moldau.log.truncation import promises_more, truncate_to
from tests.log.making import batch_of, force, make_log, open_store, put


def test_an_older_checkpoint_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    """They are written by several threads, in any order."""
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, batch_of())
    older = store.prepare_checkpoint()
    force(log)
    newer = store.prepare_checkpoint()
    newer()
    older()
    assert read_offsets(f"{tmp_path}/{RECOVERY_POINTS}") == {("t", 0): 1}
    store.close()


def points_in(folder: Path) -> int:
    return (read_offsets(f"{folder}/{RECOVERY_POINTS}") or {})["t", 0]


@pytest.mark.parametrize(
    ("cut", "point"), [(None, 3), (4, 3), (3, 3), (2, 0)], ids=["none", "above", "there", "below"]
)
def test_a_checkpoint_soon_after_a_crash_keeps_recovery_points_that_no_cut_went_below(
    tmp_path: Path, cut: int | None, point: int
) -> None:
    """Or a second crash would have the whole of the last segments checked."""
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, *(batch_of() for _ in range(3)))
    force(log)
    store.checkpoint()
    put(log, *(batch_of() for _ in range(2)))
    store.abandon()
    store = open_store(tmp_path)
    log = store.logs["t", 0]
    if cut is not None:
        truncate_to(log, cut)
    store.checkpoint()
    assert points_in(tmp_path) == point
    # The next one goes by the same.
    store.checkpoint()
    assert points_in(tmp_path) == point
    put(log, batch_of())
    force(log)
    store.checkpoint()
    assert points_in(tmp_path) == log.log_end
    store.abandon()


@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.EIO])
def test_a_log_that_is_shorter_than_was_written_down_does_not_keep_a_full_disk_from_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, *(batch_of() for _ in range(3)))
    force(log)
    store.checkpoint()
    truncate_to(log, 1)
    store.abandon()

    def refuse(path: str, offsets: object) -> None:
        raise StorageError.of(path, OSError(refusal, "refused"))

    monkeypatch.setattr("moldau.log.store.checkpoints.write_offsets", refuse)
    if refusal == errno.EIO:
        with pytest.raises(StorageError):
            open_store(tmp_path)
        monkeypatch.undo()
        # The folder is locked no more.
        open_store(tmp_path).close()
        return
    store = open_store(tmp_path)
    log = store.logs["t", 0]
    # Whoever holds it has to write it down first.
    assert promises_more(log, log.log_end)
    monkeypatch.undo()
    store.checkpoint()
    assert not promises_more(log, log.log_end)
    store.close()
