from __future__ import annotations

import errno
import os
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.log.config import LogConfig
from moldau.log.errors import FolderInUse, StorageError
from moldau.log.files import disk
from moldau.log.files.open_files import LOG_FLAGS, FilePool, OpenFile
from moldau.log.files.properties import read_topic_id
from moldau.log.retention import delete_records_before
from moldau.log.store.ends import boot_id
from moldau.log.store.store import LogStore
from tests.log.making import (
    NOW,
    TOPIC_ID,
    batch_of,
    content,
    force,
    make_log,
    offsets_of,
    open_store,
    put,
)


class Holder:
    file: OpenFile | None = None


def test_a_log_lives_in_its_topics_folder_with_the_topics_id(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store.create("my-topic", 12, TOPIC_ID), batch_of(3))
    store.close()
    assert sorted(os.listdir(tmp_path / "my-topic-12")) == [
        "00000000000000000000.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    store = open_store(tmp_path)
    log = store.logs["my-topic", 12]
    assert (log.topic_id, log.log_end) == (TOPIC_ID, 3)
    store.close()


def test_a_folder_is_locked_against_a_second_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(FolderInUse):
        open_store(tmp_path)
    store.close()
    open_store(tmp_path).close()


def test_a_deleted_log_is_gone_at_once_and_its_readers_finish(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, batch_of())
    piece = log.read(0, 100, 1)
    assert piece is not None
    store.delete("t", 0)
    assert store.logs == {}
    assert not (tmp_path / "t-0").exists()
    with pytest.raises(StorageError):
        log.append(batch_of(), 0, NOW)
    with pytest.raises(StorageError):
        log.read(0, 100, 1)
    assert len(content(piece)) == piece.size
    assert make_log(store).log_end == 0
    store.close()
    assert not list(tmp_path.glob("*-delete"))


def test_what_is_left_of_a_deletion_is_removed_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / f"t-0.{uuid.uuid4().hex}-delete").mkdir()
    (tmp_path / "not a log").mkdir()
    (tmp_path / "a-file-1").write_text("")
    store = open_store(tmp_path)
    assert store.logs == {}
    store.close()
    assert not list(tmp_path.glob("*-delete"))


def test_of_damaged_logs_the_last_of_each_partition_is_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for partition in (1, 10):
        store.create("t", partition, TOPIC_ID).abandon()
        store.set_damaged_aside("t", partition)
    put(store.create("t", 1, TOPIC_ID), batch_of())
    store.logs["t", 1].abandon()
    kept = store.set_damaged_aside("t", 1)
    store.trash.join()
    assert [str(path) for path in tmp_path.glob("t-1.*-damaged")] == [kept]
    assert len(list(tmp_path.glob("t-10.*-damaged"))) == 1
    assert os.path.getsize(f"{kept}/00000000000000000000.log") > 0
    assert store.create("t", 1, TOPIC_ID).log_end == 0
    store.close()
    store = open_store(tmp_path)
    assert list(store.logs) == [("t", 1)]
    store.close()


def test_a_log_is_created_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    make_log(store)
    with pytest.raises(StorageError):
        make_log(store)
    store.close()


@pytest.mark.parametrize("is_noted_again", [False, True])
def test_a_log_created_anew_begins_at_its_own_start_after_a_crash(
    tmp_path: Path, is_noted_again: bool
) -> None:
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, *[batch_of(10) for _ in range(5)])
    delete_records_before(log, 30)
    store.checkpoint()
    store.delete("t", 0)
    if is_noted_again:
        store.prepare_high_watermarks()()
    again = store.create("t", 0, uuid.UUID(int=8))
    put(again, *[batch_of(10) for _ in range(4)])
    store.abandon()
    after = open_store(tmp_path).logs["t", 0]
    assert (after.topic_id, after.log_start, after.log_end) == (uuid.UUID(int=8), 0, 40)


def test_opening_reports_progress(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for partition in range(3):
        store.create("t", partition, TOPIC_ID)
    store.close()
    seen: list[tuple[float, int, int]] = []
    store = LogStore(
        tmp_path,
        defaults=LogConfig(),
        max_open_files=5,
        on_progress=lambda *progress: seen.append(progress),
    )
    store.open()
    assert seen == [(1, 3, 0), (2, 3, 0), (3, 3, 0)]
    store.close()


def test_meta_properties_come_back(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.meta == {}
    store.meta = {"version": "1", "node.id": "3"}
    store.close()
    store = open_store(tmp_path)
    assert store.meta == {"version": "1", "node.id": "3"}
    store.close()


def test_high_watermarks_survive_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, batch_of(5))
    log.high_watermark = 2
    store.close()
    store = open_store(tmp_path)
    assert store.logs["t", 0].high_watermark == 2
    store.close()


def test_few_files_are_open_however_many_logs_there_are(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_open=8)
    logs = [store.create("t", partition, TOPIC_ID) for partition in range(40)]
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for _ in range(3):
        for log in logs:
            put(log, batch_of())
            assert log.read(0, 100, log.log_end) is not None
    assert len(store.pool) <= 8
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 8
    assert all(offsets_of(log) == [0, 1, 2] for log in logs)
    store.close()


def test_an_evicted_file_stays_open_for_whoever_holds_it(tmp_path: Path) -> None:
    pool = FilePool(1)
    (tmp_path / "a").write_bytes(b"alpha")
    (tmp_path / "b").write_bytes(b"beta")
    first, second = Holder(), Holder()
    held = pool.open(f"{tmp_path}/a", first, LOG_FLAGS)
    pool.open(f"{tmp_path}/b", second, LOG_FLAGS)
    assert first.file is None
    assert os.pread(held.fd, 5, 0) == b"alpha"
    fd = held.fd
    del held
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(fd)


def test_a_file_used_lately_is_evicted_last(tmp_path: Path) -> None:
    pool = FilePool(2)
    holders = [Holder() for _ in range(3)]
    for number in range(3):
        (tmp_path / str(number)).write_bytes(b"")
    one = pool.open(f"{tmp_path}/0", holders[0], LOG_FLAGS)
    two = pool.open(f"{tmp_path}/1", holders[1], LOG_FLAGS)
    one.used, two.used = True, False
    pool.open(f"{tmp_path}/2", holders[2], LOG_FLAGS)
    assert holders[0].file is one
    assert holders[1].file is None


def test_running_out_of_descriptors_makes_the_pool_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, max_open=1000)
    logs = [store.create("t", partition, TOPIC_ID) for partition in range(60)]
    real = os.open

    def scarce(path: str, flags: int, mode: int = 0o777) -> int:
        if len(store.pool) >= 20:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", scarce)
        for log in logs:
            put(log, batch_of())
    assert len(store.pool) <= 20
    assert all(offsets_of(log) == [0] for log in logs)
    store.close()


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        FilePool(1).open(f"{tmp_path}/none", Holder(), LOG_FLAGS)


def test_a_log_that_could_not_be_made_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)

    def refuse(topic_id: object) -> bytes:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr("moldau.log.store.store.encode_topic_id", refuse)
    with pytest.raises(StorageError):
        make_log(store)
    monkeypatch.undo()
    assert not (tmp_path / "t-0").exists()
    make_log(store)
    store.close()


@pytest.mark.parametrize("has_data", [True, False])
def test_the_first_flush_of_a_life_forces_whose_a_log_is_unless_a_clean_stop_did(
    tmp_path: Path, has_data: bool
) -> None:
    store = open_store(tmp_path)
    log = make_log(store)
    if has_data:
        put(log, batch_of())
        store.abandon()
    else:
        # Nothing is written of an empty log.
        store.close()
    again = open_store(tmp_path)
    log = again.logs["t", 0]
    metadata = tmp_path / "t-0" / "partition.metadata"
    metadata.write_bytes(b"")
    put(log, batch_of())
    force(log)
    assert read_topic_id(str(metadata)) == TOPIC_ID
    again.close()


@pytest.mark.parametrize("end", ["stop", "crash", "power failure"])
@pytest.mark.parametrize("has_data", [True, False])
def test_whose_a_log_is_that_lost_its_topics_id_is_known_unless_the_power_failed(
    tmp_path: Path, end: str, has_data: bool
) -> None:
    store = open_store(tmp_path)
    store.life.begin(1, ())
    log = make_log(store)
    if has_data:
        put(log, batch_of())
    if end == "stop":
        store.close()
    else:
        store.abandon()
    (tmp_path / "t-0" / "partition.metadata").write_bytes(b"")
    if end == "power failure":
        ends = tmp_path / "log-ends"
        ends.write_bytes(ends.read_bytes().replace(boot_id().encode(), b"0" * len(boot_id())))
    again = open_store(tmp_path)
    assert again.logs["t", 0].topic_id is None
    assert again.may_claim("t", 0, TOPIC_ID) == (end != "power failure" or not has_data)
    assert again.may_claim("t", 0, uuid.UUID(int=8)) == (not has_data)
    again.close()


# Closing many


@pytest.fixture
def syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the disk was asked to keep a file, and a whole file system."""
    counts: Counter[str] = Counter()

    def fsync(fd: int, call: Callable[[int], None] = os.fsync) -> None:
        # Other threads of this process may be those of brokers.
        counts["file"] += os.readlink(f"/proc/self/fd/{fd}").startswith(str(tmp_path))
        call(fd)

    def syncfs(fd: int, call: Callable[[int], None] = disk.sync_file_system) -> None:
        counts["file system"] += 1
        call(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr("moldau.log.store.closing.sync_file_system", syncfs)
    monkeypatch.setattr("moldau.log.store.closing.FEW", 5)
    return counts


MANY = 300


def test_closing_logs_that_were_never_written_to_forces_none_to_disk(
    tmp_path: Path, syncs: Counter[str]
) -> None:
    logs = open_store(tmp_path)
    for index in range(MANY):
        log = logs.create("t", index, TOPIC_ID)
        # What becoming their leader does.
        log.epochs.assign(3, log.log_end)
    syncs.clear()
    logs.close()
    assert syncs["file"] < 20
    again = open_store(tmp_path)
    assert again.was_clean
    assert len(again.logs) == MANY
    again.close()


@pytest.mark.skipif(not disk.can_sync_file_systems(), reason="the system has no such call")
def test_closing_many_logs_forces_the_file_system_to_disk_once(
    tmp_path: Path, syncs: Counter[str]
) -> None:
    logs = LogStore(tmp_path, defaults=LogConfig(), max_open_files=16)
    logs.open()
    for index in range(MANY):
        log = logs.create("t", index, TOPIC_ID)
        put(log, batch_of(), epoch=5)
    syncs.clear()
    logs.close()
    assert syncs["file"] < 50
    assert syncs["file system"] == 1
    again = open_store(tmp_path)
    assert again.was_clean
    for log in again.logs.values():
        assert (log.log_end, log.flushed, log.epochs.entries) == (1, 1, [(5, 0)])
    again.close()


def test_an_epoch_file_that_a_crash_left_empty_is_rebuilt(tmp_path: Path) -> None:
    logs = open_store(tmp_path)
    log = logs.create("t", 0, TOPIC_ID)
    for epoch in (2, 7):
        put(log, batch_of(), epoch=epoch)
    logs.close()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"")
    again = open_store(tmp_path)
    assert again.logs["t", 0].epochs.entries == [(2, 0), (7, 1)]
    again.close()
