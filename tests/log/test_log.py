from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.log.config import LogConfig
from moldau.log.errors import (
    InvalidProducerEpoch,
    InvalidTimestamp,
    InvalidTransactionState,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
    UnexpectedOffset,
)
from moldau.log.flushing import close, prepare_flush
from moldau.log.log import Log
from moldau.log.lookup import max_timestamp, offset_for_time
from moldau.log.retention import delete_records_before, roll_if_due
from moldau.log.store.store import LogStore
from moldau.log.truncation import truncate_to
from moldau.records.batch import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    NotOneBatch,
    check_batch,
)
from moldau.records.compression import Codec
from moldau.records.record import (
    Record,
    build_batch,
    build_end_marker,
    records_of,
)
from tests.log.making import (
    NOW,
    batch_of,
    content,
    headers,
    make_log,
    offsets_of,
    open_store,
    put,
    read_all,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


@pytest.fixture
def log(store: LogStore) -> Log:
    return make_log(store)


def configured(log: Log, **values: Any) -> Log:
    log.config = LogConfig(**values)
    return log


# Appending


def test_offsets_and_leader_epoch_are_set_in_the_producers_buffer(log: Log) -> None:
    first, second = batch_of(3), batch_of(2)
    assert log.append(first, 4, NOW) == (0, -1)
    assert log.append(second, 4, NOW) == (3, -1)
    assert check_batch(second).base_offset == 3
    assert check_batch(second).leader_epoch == 4
    assert log.log_end == 5
    log.commit()
    assert read_all(log) == bytes(first) + bytes(second)
    assert log.epochs.entries == [(4, 0)]


def test_nothing_staged_can_be_read_before_the_commit(log: Log) -> None:
    log.append(batch_of(), 0, NOW)
    assert log.read(0, 1000, 99) is None
    log.advance_high_watermark(99)
    assert log.high_watermark == 0
    log.commit()
    assert log.read(0, 1000, 99) is not None
    log.advance_high_watermark(99)
    assert log.high_watermark == 1


def test_exactly_one_batch_is_taken(log: Log) -> None:
    two = memoryview(bytearray(bytes(batch_of()) + bytes(batch_of())))
    with pytest.raises(NotOneBatch):
        log.append(two, 0, NOW)
    with pytest.raises(NotOneBatch):
        log.append(batch_of()[:-1], 0, NOW)
    with pytest.raises(NotOneBatch):
        log.append(batch_of()[:30], 0, NOW)
    assert log.log_end == 0


def test_corrupt_and_lying_batches_are_refused(log: Log) -> None:
    corrupt = batch_of()
    corrupt[70] ^= 1
    with pytest.raises(CorruptBatch):
        log.append(corrupt, 0, NOW)
    magic = batch_of()
    for number in (0, 1, 3, 255):
        magic[16] = number
        with pytest.raises(NotOneBatch if number < 2 else CorruptBatch):
            log.append(magic, 0, NOW)
    length = batch_of()
    length[8:12] = bytes(4)
    with pytest.raises(CorruptBatch):
        log.append(length, 0, NOW)
    offset = batch_of()
    offset[7] = 9
    with pytest.raises(InvalidRecord):
        log.append(offset, 0, NOW)
    for wrong in (
        build_batch([Record(0, NOW, b"\0\0\0\0", b"")], is_control=True),
        build_batch([Record(0, NOW, b"k", b"")], last_offset_delta=5),
        build_batch([], last_offset_delta=0),
        build_batch([Record(0, NOW, b"k", b"")], producer_id=3, producer_epoch=0),
    ):
        with pytest.raises(InvalidRecord):
            log.append(memoryview(wrong), 0, NOW)
    assert log.log_end == 0


def test_a_batch_larger_than_the_topic_allows_is_refused(log: Log) -> None:
    configured(log, max_message_bytes=100)
    put(log, batch_of(size=20))
    with pytest.raises(BatchTooLarge) as caught:
        log.append(batch_of(size=200), 0, NOW)
    assert caught.value.limit == 100


def test_timestamps_out_of_range_are_refused(log: Log) -> None:
    configured(log, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    put(log, batch_of(timestamp=NOW - 1000), batch_of(timestamp=NOW + 500))
    put(log, batch_of(timestamp=-1))
    for timestamp in (NOW - 1001, NOW + 501, 0):
        with pytest.raises(InvalidTimestamp):
            log.append(batch_of(timestamp=timestamp), 0, NOW)
    claims = memoryview(build_batch([Record(0, NOW, b"k", b"v")], append_time_ms=NOW))
    with pytest.raises(InvalidTimestamp):
        log.append(claims, 0, NOW)


def test_append_time_replaces_the_producers_timestamps(log: Log) -> None:
    configured(log, message_timestamp_type="LogAppendTime")
    batch = batch_of(2, timestamp=5, codec=Codec.ZSTD)
    assert log.append(batch, 0, NOW) == (0, NOW)
    log.commit()
    assert check_batch(batch).uses_append_time
    assert [record.timestamp for record in records_of(read_all(log))] == [NOW, NOW]


@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topics_compression_type_recompresses(log: Log, name: str) -> None:
    configured(log, compression_type=name)
    wanted = Codec.NONE if name == "uncompressed" else Codec[name.upper()]
    for codec in Codec:
        put(log, batch_of(20, size=100, codec=codec))
    found = list(headers(read_all(log)))
    assert {header.codec for header in found} == {wanted}
    assert [header.base_offset for header in found] == [0, 20, 40, 60, 80]
    assert [record.offset for record in records_of(read_all(log), 0)][:3] == [0, 1, 2]


def test_a_compacted_topic_refuses_records_without_key(log: Log) -> None:
    configured(log, cleanup_policy=("compact",))
    put(log, batch_of(codec=Codec.LZ4))
    for codec in Codec:
        with pytest.raises(InvalidRecord):
            log.append(batch_of(3, key=None, codec=codec), 0, NOW)


# Idempotence


def test_a_repeated_batch_gets_its_first_offset_and_is_not_written_again(log: Log) -> None:
    for number in range(7):
        put(log, batch_of(2, producer_id=1, sequence=number * 2))
    size = log.segments.size
    for number in range(2, 7):
        again = batch_of(2, producer_id=1, sequence=number * 2)
        assert log.append(again, 0, NOW) == (number * 2, -1)
    log.commit()
    assert log.segments.size == size
    with pytest.raises(OutOfOrderSequence):
        log.append(batch_of(2, producer_id=1, sequence=2), 0, NOW)


def test_a_batch_that_does_not_follow_is_refused(log: Log) -> None:
    put(log, batch_of(3, producer_id=1, sequence=0))
    for sequence in (1, 2, 4, 100):
        with pytest.raises(OutOfOrderSequence) as caught:
            log.append(batch_of(1, producer_id=1, sequence=sequence), 0, NOW)
        assert caught.value.expected == 3


def test_an_old_epoch_is_fenced_and_a_new_one_begins_at_zero(log: Log) -> None:
    put(log, batch_of(producer_id=1, producer_epoch=2, sequence=0))
    with pytest.raises(InvalidProducerEpoch):
        log.append(batch_of(producer_id=1, producer_epoch=1, sequence=1), 0, NOW)
    with pytest.raises(OutOfOrderSequence):
        log.append(batch_of(producer_id=1, producer_epoch=3, sequence=1), 0, NOW)
    put(log, batch_of(producer_id=1, producer_epoch=3, sequence=0))


def test_sequences_wrap_around(log: Log) -> None:
    last = 2**31 - 1
    put(log, batch_of(producer_id=1, sequence=last - 1))
    put(log, batch_of(3, producer_id=1, sequence=last))
    put(log, batch_of(producer_id=1, sequence=2))
    assert log.append(batch_of(3, producer_id=1, sequence=last), 0, NOW) == (1, -1)


def test_an_open_transaction_holds_back_the_last_stable_offset(log: Log) -> None:
    put(log, batch_of(2))
    put(log, batch_of(2, producer_id=1, is_transactional=True))
    put(log, batch_of(2))
    assert (log.last_stable, log.high_watermark) == (2, 6)
    with pytest.raises(InvalidTransactionState):
        log.append(batch_of(producer_id=1, sequence=2), 0, NOW)
    marker = build_end_marker(
        commits=True, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp=NOW
    )
    log.append(memoryview(marker), 0, NOW, from_client=False)
    log.commit()
    assert log.last_stable == 2
    log.advance_high_watermark(log.log_end)
    assert log.last_stable == 7


# A disk that refuses


def refuse(monkeypatch: pytest.MonkeyPatch, after: int = 0, code: int = errno.ENOSPC) -> None:
    """Let writes take `after` bytes more, in pieces, and then fail."""
    left = [after]
    real = os.write

    def writev(fd: int, parts: Any) -> int:
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


# Reading


def test_a_slice_ends_on_a_batch_boundary_within_the_limit(log: Log) -> None:
    configured(log, index_interval_bytes=300)
    batches = [batch_of(size=n % 90) for n in range(200)]
    put(log, *batches)
    whole = b"".join(map(bytes, batches))
    for limit in (1, 150, 299, 301, 1000, 5000, 10**6):
        for offset in (0, 1, 57, 199):
            piece = log.read(offset, limit, log.log_end)
            assert piece is not None
            data = content(piece)
            assert whole[len(b"".join(map(bytes, batches[:offset]))) :].startswith(data)
            assert list(headers(data))
            assert len(data) <= limit or len(list(headers(data))) == 1


def test_the_first_batch_is_given_whole_only_where_asked(log: Log) -> None:
    put(log, batch_of(size=500))
    piece = log.read(0, 10, 1)
    assert piece is not None
    assert piece.size > 500
    assert log.read(0, 10, 1, whole_first=False) is None


def test_a_read_never_crosses_up_to(log: Log) -> None:
    put(log, *[batch_of(3) for _ in range(5)])
    for up_to in range(0, 16, 3):
        piece = log.read(0, 10**6, up_to)
        got = list(headers(content(piece))) if piece else []
        assert len(got) == up_to // 3
    assert log.read(6, 10**6, 6) is None
    assert log.read(7, 10**6, 3) is None


def test_a_read_inside_a_batch_gives_the_batch(log: Log) -> None:
    put(log, batch_of(5), batch_of(5))
    piece = log.read(7, 10**6, 10)
    assert piece is not None
    assert [header.base_offset for header in headers(content(piece))] == [5]


def test_offsets_outside_of_the_log_are_out_of_range(log: Log) -> None:
    put(log, batch_of(5))
    assert log.read(5, 100, 5) is None
    for offset in (-1, 6):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, 100, 5)
        assert (caught.value.log_start, caught.value.log_end) == (0, 5)


def test_a_slice_outlives_its_segment(log: Log) -> None:
    configured(log, segment_bytes=200)
    put(log, *[batch_of(size=50) for _ in range(9)])
    piece = log.read(0, 1000, 9)
    assert piece is not None
    before = content(piece)
    delete_records_before(log, 9)
    log.segments.trash.join()
    assert not os.path.exists(f"{log.folder}/{0:020d}.log")
    assert content(piece) == before


# Rolling


def test_segments_roll_by_size(log: Log) -> None:
    configured(log, segment_bytes=250)
    put(log, *[batch_of() for _ in range(10)])
    assert len(log.segments) > 3
    assert all(segment.size <= 250 for segment in log.segments)
    assert offsets_of(log) == list(range(10))
    assert [segment.base for segment in log.segments][:2] == [0, 3]
    names = sorted(os.listdir(log.folder))
    assert "00000000000000000003.log" in names
    assert "00000000000000000003.snapshot" in names


def test_segments_roll_by_the_age_of_their_records(log: Log) -> None:
    configured(log, segment_ms=1000, message_timestamp_after_max_ms=10**9)
    put(log, batch_of(timestamp=NOW), batch_of(timestamp=NOW + 1000))
    assert [segment.base for segment in log.segments] == [0]
    put(log, batch_of(timestamp=NOW + 1001))
    assert [segment.base for segment in log.segments] == [0, 2]
    assert [roll_if_due(log, NOW + later) for later in (2001, 2002, 9999)] == [False, True, False]


def test_segments_roll_when_an_index_is_full(log: Log) -> None:
    configured(log, segment_index_bytes=24, index_interval_bytes=0)
    put(log, *[batch_of(timestamp=NOW + n) for n in range(8)])
    assert len(log.segments) > 2
    for segment in log.segments[:-1]:
        assert segment.offset_index.count <= 3
        assert segment.time_index.count <= 2


def test_segments_roll_before_relative_offsets_overflow(log: Log) -> None:
    log.append_replica(memoryview(build_batch([Record(0, NOW, b"k", b"v")])), 0, NOW)
    log.append_replica(memoryview(build_batch([Record(2**31 + 5, NOW, b"k", b"v")])), 1, NOW)
    log.commit()
    assert [segment.base for segment in log.segments] == [0, 2**31 + 5]
    assert offsets_of(log) == [0, 2**31 + 5]


def test_a_changed_config_holds_for_the_active_segment(log: Log) -> None:
    put(log, batch_of(), batch_of())
    configured(log, segment_bytes=100)
    put(log, batch_of())
    assert len(log.segments) == 2


# Following


def test_a_follower_takes_batches_as_they_are(log: Log) -> None:
    data = build_batch([Record(5, NOW, b"k", b"v")], leader_epoch=3)
    data += build_batch([Record(9, NOW, b"k", b"v")], leader_epoch=4)
    log.append_replica(memoryview(data), 0, NOW)
    log.commit()
    assert read_all(log) == bytes(data)
    assert log.log_end == 10
    assert log.epochs.entries == [(3, 5), (4, 9)]
    assert log.epochs.end_of(3, log.log_end) == (3, 9)
    assert log.epochs.end_of(4, log.log_end) == (4, 10)
    with pytest.raises(UnexpectedOffset):
        log.append_replica(memoryview(data), 10, NOW)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.append_replica(memoryview(data[len(data) // 2 :]), 10, NOW)


@pytest.mark.parametrize("asked", [0, 9, 11])
def test_a_follower_takes_nothing_that_was_asked_for_when_its_log_ended_elsewhere(
    log: Log, asked: int
) -> None:
    log.append_replica(memoryview(build_batch([Record(9, NOW, b"k", b"v")])), 0, NOW)
    log.commit()
    with pytest.raises(UnexpectedOffset):
        log.append_replica(memoryview(build_batch([Record(11, NOW, b"k", b"v")])), asked, NOW)
    assert log.log_end == 10


def test_truncation_forgets_producers_epochs_and_times(log: Log) -> None:
    configured(log, segment_bytes=300, message_timestamp_after_max_ms=10**9)
    for number in range(8):
        batch = batch_of(producer_id=1, sequence=number, timestamp=NOW + number)
        put(log, batch, epoch=number // 2)
    truncate_to(log, 5)
    assert log.log_end == 5
    assert log.high_watermark == 5
    assert log.epochs.entries == [(0, 0), (1, 2), (2, 4)]
    assert max_timestamp(log) == (4, NOW + 4, 2)
    assert log.append(batch_of(producer_id=1, sequence=4), 2, NOW) == (4, -1)
    put(log, batch_of(producer_id=1, sequence=5), epoch=2)
    assert offsets_of(log) == [0, 1, 2, 3, 4, 5]


def test_truncating_below_the_log_restarts_it_there(log: Log) -> None:
    configured(log, segment_bytes=100)
    put(log, *[batch_of() for _ in range(5)])
    delete_records_before(log, 4)
    truncate_to(log, 2)
    assert (log.log_start, log.log_end, log.segments.size) == (2, 2, 0)
    assert put(log, batch_of()) == [2]


# Time


def test_time_lookup_is_exact_inside_batches(log: Log) -> None:
    configured(log, index_interval_bytes=100, segment_bytes=600)
    for number in range(30):
        put(log, batch_of(10, timestamp=NOW + number * 100, codec=Codec(number % 5)))
    assert offset_for_time(log, 0) == (0, NOW, 0)
    assert offset_for_time(log, NOW + 5) == (5, NOW + 5, 0)
    assert offset_for_time(log, NOW + 10) == (10, NOW + 100, 0)
    assert offset_for_time(log, NOW + 1707) == (177, NOW + 1707, 0)
    assert offset_for_time(log, NOW + 2909) == (299, NOW + 2909, 0)
    assert offset_for_time(log, NOW + 2910) is None
    assert max_timestamp(log) == (299, NOW + 2909, 0)


def test_time_lookup_minds_records_out_of_order(log: Log) -> None:
    configured(log, index_interval_bytes=0)
    for timestamp in (NOW + 50, NOW + 10, NOW + 90, NOW + 20, NOW + 90):
        put(log, batch_of(timestamp=timestamp))
    assert offset_for_time(log, NOW + 10) == (0, NOW + 50, 0)
    assert offset_for_time(log, NOW + 51) == (2, NOW + 90, 0)
    assert max_timestamp(log) == (2, NOW + 90, 0)
    delete_records_before(log, 3)
    assert offset_for_time(log, NOW + 10) == (3, NOW + 20, 0)
    assert max_timestamp(log) == (4, NOW + 90, 0)


def test_an_empty_log_has_no_times(log: Log) -> None:
    assert offset_for_time(log, 0) is None
    assert max_timestamp(log) is None


# Flushing


def test_a_flush_covers_what_was_written_before_it_was_prepared(log: Log) -> None:
    assert prepare_flush(log) is None
    put(log, batch_of(3))
    flush = prepare_flush(log)
    assert flush is not None
    put(log, batch_of())
    flush.run()
    assert log.flushed == 0
    flush.done()
    assert log.flushed == 3


def test_a_flush_does_not_count_when_the_log_was_cut_meanwhile(log: Log) -> None:
    put(log, batch_of(), batch_of(), batch_of())
    flush = prepare_flush(log)
    assert flush is not None
    flush.run()
    truncate_to(log, 1)
    put(log, batch_of(), batch_of())
    flush.done()
    assert log.flushed <= 1
    assert not (Path(log.folder) / f"{3:020d}.snapshot").exists()


def test_a_failed_flush_is_tried_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    put(log, batch_of())
    real = os.fsync
    with monkeypatch.context() as patch:

        def fsync(fd: int) -> None:
            # Other threads of this process may be those of brokers.
            if os.readlink(f"/proc/self/fd/{fd}").startswith(log.folder):
                raise OSError(errno.EIO, "broken")
            real(fd)

        flush = prepare_flush(log)
        assert flush is not None
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StorageError):
            flush.run()
        flush.done()
    assert log.flushed == 0
    again = prepare_flush(log)
    assert again is not None
    again.run()
    again.done()
    assert log.flushed == 1
    assert (Path(log.folder) / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
