"""The record of where logs end: what a process that was killed leaves, and what a stop does."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from moldau.log.config import LogConfig
from moldau.log.errors import StorageError
from moldau.log.store import ends
from moldau.log.store.ends import FILE_NAME, KnownEnds, LogEnds, read_ends
from moldau.log.store.last_life import LastLife
from moldau.log.store.store import LogStore
from moldau.log.truncation import restart_at, truncate_to
from tests.log.making import TOPIC_ID, batch_of, make_log, open_store, put


def known(folder: Path) -> KnownEnds | None:
    return read_ends(f"{folder}/{FILE_NAME}")


def opened(folder: Path, registration: int = 7) -> LogStore:
    store = open_store(folder, LogConfig(segment_bytes=1000))
    store.life.begin(registration, store.logs.values())
    return store


def test_every_write_and_every_cut_is_written_down_at_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = make_log(store)
    seen = []
    for step in (
        lambda: put(log, batch_of(3)),
        lambda: put(log, *(batch_of(20) for _ in range(5))),
        lambda: truncate_to(log, 3),
        lambda: restart_at(log, 9),
    ):
        step()
        found = known(tmp_path)
        assert found is not None
        assert (found.boot_id, found.registrations) == (ends.boot_id(), (7, 7))
        seen.append(found.end_of(TOPIC_ID, 0))
    assert seen == [3, 103, 3, 9]
    store.life.registered(31, 8)
    found = known(tmp_path)
    assert found is not None
    assert found.registrations == (8, 8)
    store.delete("t", 0)
    found = known(tmp_path)
    assert found is not None
    assert found.entries == {}
    store.abandon()


def test_there_is_room_for_as_many_logs_as_there_are(tmp_path: Path) -> None:
    record = LogEnds(f"{tmp_path}/{FILE_NAME}", 1)
    entries = [record.take(uuid.UUID(int=number + 1), number, number) for number in range(5000)]
    for number in range(0, 5000, 2):
        record.drop(entries[number])
    again = record.take(uuid.UUID(int=9999), 3, 0)
    again[0][again[1]] = 77
    found = known(tmp_path)
    assert found is not None
    assert len(found.entries) == 2501
    assert found.end_of(uuid.UUID(int=4000), 3999) == 3999
    assert found.end_of(uuid.UUID(int=9999), 3) == 77
    assert (tmp_path / FILE_NAME).stat().st_size == 3 << 16
    record.close()


def test_a_torn_record_is_none(tmp_path: Path) -> None:
    record = LogEnds(f"{tmp_path}/{FILE_NAME}", 1)
    for number in range(3000):
        record.take(uuid.UUID(int=number + 1), 0, 5)
    record.close()
    whole = (tmp_path / FILE_NAME).read_bytes()
    for damaged in (b"", whole[: 1 << 16], whole[:-1], whole[:100], bytes(100) + whole[100:]):
        (tmp_path / FILE_NAME).write_bytes(damaged)
        assert known(tmp_path) is None
    (tmp_path / FILE_NAME).unlink()
    assert known(tmp_path) is None


def test_a_chunk_that_was_added_when_the_process_ended_does_no_harm(tmp_path: Path) -> None:
    record = LogEnds(f"{tmp_path}/{FILE_NAME}", 1)
    record.take(TOPIC_ID, 0, 5)
    record._grow(0)
    found = known(tmp_path)
    assert found is not None
    assert found.entries == {(TOPIC_ID, 0): (5, 0)}
    record.close()


def test_a_process_that_ends_while_it_begins_a_life_leaves_the_last_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path).abandon()
    grow = LogEnds._grow

    def look(self: LogEnds, first: int) -> None:
        grow(self, first)
        assert known(tmp_path) is not None

    monkeypatch.setattr(LogEnds, "_grow", look)
    opened(tmp_path, 8).abandon()
    assert not (tmp_path / f"{FILE_NAME}.new").exists()


def test_whether_the_next_registration_took_place_need_not_be_known(tmp_path: Path) -> None:
    def is_believed(*registrations: int) -> list[bool]:
        last = LastLife(None, known(tmp_path))
        return [last.lost_nothing(number) for number in registrations]

    store = opened(tmp_path)
    store.life.expect_registration(7)
    assert is_believed(6, 7, 8, 9) == [False, True, True, False]
    store.life.registered(31, 8)
    assert is_believed(7, 8, 9) == [False, True, False]
    store.close()
    # Starts that get no further than their arrival, of which the cluster knows or not.
    for number, after in ((8, [True, True, False, False]), (9, [False, True, True, False])):
        store = open_store(tmp_path)
        store.life.expect_registration(number)
        # It is tried again if there was no answer.
        store.life.expect_registration(number)
        store.leave_as_found()
        assert is_believed(8, 9, 10, 11) == after
    # What is a copy does not become believable by a start.
    store = open_store(tmp_path)
    store.life.expect_registration(12)
    store.leave_as_found()
    assert is_believed(9, 10, 12, 13) == [True, True, False, False]


def test_a_clean_stop_of_a_version_without_a_record_outweighs_an_earlier_record(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    store.life.registered(31, 8)
    put(make_log(store), batch_of(3))
    store.close()
    assert open_store(tmp_path).life.last.ends is not None
    (tmp_path / ".lock").unlink()
    opened(tmp_path, 9).abandon()
    (tmp_path / ".lock").unlink()
    # It neither looks at the record nor names the epoch.
    store = open_store(tmp_path)
    truncate_to(store.logs["t", 0], 0)
    put(store.logs["t", 0], batch_of(2))
    store.close()
    store = open_store(tmp_path)
    assert store.life.last.lost_nothing(11)
    assert store.life.last.end_of("t", TOPIC_ID, 0) == store.logs["t", 0].log_end == 2
    store.abandon()
    # A crash of such a version is none of that record's.
    assert not open_store(tmp_path).life.last.lost_nothing(11)


def test_after_a_clean_stop_a_changed_log_is_looked_through(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = make_log(store)
    put(log, batch_of(3), batch_of(4))
    store.close()
    assert open_store(tmp_path).logs["t", 0].log_end == 7
    (tmp_path / ".lock").unlink()
    segment = tmp_path / "t-0" / f"{0:020d}.log"
    data = segment.read_bytes()
    store = opened(tmp_path)
    store.close()
    segment.write_bytes(data[: len(data) // 2])
    store = open_store(tmp_path)
    assert store.was_clean
    assert store.logs["t", 0].log_end == 3, "not what the recovery points say"
    assert store.life.last.lost_nothing(7)
    assert store.life.last.end_of("t", TOPIC_ID, 0) == 7
    store.abandon()


def test_what_is_not_known_of_the_last_life_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    store.abandon()
    last = open_store(tmp_path).life.last
    assert last.lost_nothing(7), "only the process has ended"
    assert not last.lost_nothing(8), "another life came after it"
    monkeypatch.setattr(ends, "_BOOT_ID", str(tmp_path / "none"))
    monkeypatch.setattr("moldau.log.store.last_life.boot_id", lambda: "")
    assert not last.lost_nothing(7), "perhaps the machine was started anew"
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / ".lock").unlink()
    assert not open_store(tmp_path).life.last.lost_nothing(7)


def test_a_start_that_leads_nowhere_leaves_the_same_signs(tmp_path: Path) -> None:
    opened(tmp_path).close()
    record = (tmp_path / FILE_NAME).read_bytes()
    marker = (tmp_path / ".kafka_cleanshutdown").read_bytes()
    store = open_store(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    store.leave_as_found()
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == marker
    assert (tmp_path / FILE_NAME).read_bytes() == record
    store = open_store(tmp_path)
    store.abandon()
    # A crash is not turned into a clean stop either.
    open_store(tmp_path).leave_as_found()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_without_room_for_it_there_is_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    put(make_log(store), batch_of(3))
    store.close()

    def refuse(self: LogEnds, first: int) -> None:
        raise StorageError("log-ends", "no space left on device")

    monkeypatch.setattr(LogEnds, "_grow", refuse)
    store = opened(tmp_path)
    put(store.logs["t", 0], batch_of(3))
    assert known(tmp_path) is None
    store.abandon()
    assert not open_store(tmp_path).life.last.lost_nothing(7)
