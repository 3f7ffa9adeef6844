from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from moldau.log.errors import (
    InvalidTimestamp,
    StorageError,
    UnexpectedOffset,
)
from moldau.log.flushes.flushing import prepare_flush
from moldau.log.log import Log
from moldau.log.lookup import max_timestamp
from moldau.log.replica import append_replica
from moldau.log.retention import delete_records_before, roll_if_due
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
    records_of,
)
from tests.log.making import (
    NOW,
    TERM,
    batch_of,
    configured,
    headers,
    offsets_of,
    put,
    read_all,
)

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
    append_replica(log, memoryview(build_batch([Record(0, NOW, b"k", b"v")])), 0, TERM, NOW)
    append_replica(log, memoryview(build_batch([Record(2**31 + 5, NOW, b"k", b"v")])), 1, TERM, NOW)
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
    append_replica(log, memoryview(data), 0, TERM, NOW)
    log.commit()
    assert read_all(log) == bytes(data)
    assert log.log_end == 10
    # Each may have begun right where the one before it ended, as far as can be seen here.
    assert log.epochs.entries == [(3, 0), (4, 6)]
    assert log.epochs.end_of(3, log.log_end) == (3, 6)
    assert log.epochs.end_of(4, log.log_end) == (4, 10)
    with pytest.raises(UnexpectedOffset):
        append_replica(log, memoryview(data), 10, TERM, NOW)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        append_replica(log, memoryview(data[len(data) // 2 :]), 10, TERM, NOW)


@pytest.mark.parametrize(("told", "begins"), [(7, 7), (3, 5), (20, 9)])
def test_an_epoch_begins_in_a_gap_where_the_leader_says(log: Log, told: int, begins: int) -> None:
    first = build_batch([Record(4, NOW, b"k", b"v")], leader_epoch=3)
    later = [build_batch([Record(9, NOW, b"k", b"v")], leader_epoch=4)]
    later.append(build_batch([Record(12, NOW, b"k", b"v")], leader_epoch=5))
    append_replica(log, memoryview(first), 0, TERM, NOW)
    for known in (None, told, None):
        append_replica(
            log, memoryview(b"".join(later[log.log_end > 5 :])), log.log_end, TERM, NOW, known
        )
        log.commit()
    # That was said of one epoch, and not of the next.
    assert log.epochs.entries == [(3, 0), (4, begins)]
    assert log.log_end == 10


@pytest.mark.parametrize("asked", [0, 9, 11])
def test_a_follower_takes_nothing_that_was_asked_for_when_its_log_ended_elsewhere(
    log: Log, asked: int
) -> None:
    append_replica(log, memoryview(build_batch([Record(9, NOW, b"k", b"v")])), 0, TERM, NOW)
    log.commit()
    with pytest.raises(UnexpectedOffset):
        append_replica(
            log, memoryview(build_batch([Record(11, NOW, b"k", b"v")])), asked, TERM, NOW
        )
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


def test_a_cut_reaches_the_disk_though_the_log_goes_on_in_another_segment(log: Log) -> None:
    put(log, *[batch_of() for _ in range(4)])
    flush_now(log)
    cut = log.segments.last
    truncate_to(log, 2)
    # Another life would have to do it, too: it begins with what counts as flushed.
    assert log.flushed == cut.base
    configured(log, segment_bytes=100)
    put(log, batch_of(), epoch=1)
    assert len(log.segments) == 2
    assert cut.path in flush_now(log)
    assert log.flushed == log.log_end == 3


def test_truncating_below_the_log_restarts_it_there(log: Log) -> None:
    configured(log, segment_bytes=100)
    put(log, *[batch_of() for _ in range(5)])
    delete_records_before(log, 4)
    truncate_to(log, 2)
    assert (log.log_start, log.log_end, log.segments.size) == (2, 2, 0)
    assert put(log, batch_of()) == [2]


# Flushing


def flush_now(log: Log) -> list[str]:
    """Flush a log; the files that were forced to disk."""
    flush = prepare_flush(log)
    assert flush is not None
    forced = [path for path, _ in flush._files]
    flush.run()
    flush.done()
    return forced


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
