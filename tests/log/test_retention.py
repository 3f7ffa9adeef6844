from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.log.config import LogConfig
from moldau.log.errors import OffsetOutOfRange
from moldau.log.log import Log
from moldau.log.retention import delete_expired, delete_records_before
from moldau.log.segments import segments
from moldau.log.truncation import restart_at
from tests.log.making import NOW, batch_of, make_log, offsets_of, open_store, put

DAY = 24 * 3_600_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Ten batches of one record, a second apart, one in each segment."""
    store = open_store(tmp_path)
    log = make_log(store)
    log.config = LogConfig(segment_bytes=120)
    for number in range(10):
        put(log, batch_of(size=30, timestamp=NOW + number * 1000))
    assert len(log.segments) == 10
    yield log
    store.close()


def retain(log: Log, now_ms: int, **values: object) -> list[str]:
    log.config = LogConfig(segment_bytes=120, **values)  # type: ignore[arg-type]
    return [deleted.reason for deleted in delete_expired(log, now_ms)]


def test_old_segments_go_by_the_time_of_their_newest_record(log: Log) -> None:
    assert retain(log, NOW + 7000, retention_ms=3000) == ["retention.ms"] * 4
    assert log.log_start == 4
    assert offsets_of(log) == [4, 5, 6, 7, 8, 9]


def test_the_active_segment_is_rolled_when_it_is_wholly_expired(log: Log) -> None:
    assert len(retain(log, NOW + DAY, retention_ms=3000)) == 10
    assert (log.log_start, log.log_end, log.segments.size) == (10, 10, 0)
    assert put(log, batch_of()) == [10]


def test_old_segments_go_by_size(log: Log) -> None:
    size = log.segments[0].size
    assert retain(log, NOW, retention_bytes=3 * size) == ["retention.bytes"] * 7
    assert offsets_of(log) == [7, 8, 9]
    assert retain(log, NOW, retention_bytes=3 * size) == []
    assert retain(log, NOW, retention_bytes=3 * size - 1) == []


def test_nothing_goes_without_limits(log: Log) -> None:
    assert retain(log, NOW + 999 * DAY, retention_ms=-1) == []


def test_a_compacted_topic_keeps_its_segments(log: Log) -> None:
    assert retain(log, NOW + DAY, retention_ms=1, cleanup_policy=("compact",)) == []
    delete_records_before(log, 3)
    assert offsets_of(log)[0] == 3


def test_nothing_at_or_above_the_high_watermark_goes(log: Log) -> None:
    log.high_watermark = 5
    assert len(retain(log, NOW + DAY, retention_ms=1)) == 5
    assert log.log_start == 5


def test_a_timestamp_in_the_future_holds_back_only_what_follows(log: Log) -> None:
    log.config = LogConfig(segment_bytes=120, message_timestamp_after_max_ms=99 * DAY)
    put(log, batch_of(size=30, timestamp=NOW + 50 * DAY))
    put(log, batch_of(size=30, timestamp=NOW))
    assert len(retain(log, NOW + DAY, retention_ms=1000)) == 10
    assert log.log_start == 10


def test_records_without_timestamps_age_by_their_file(log: Log) -> None:
    put(log, batch_of(size=30, timestamp=-1), batch_of(size=30, timestamp=-1))
    assert len(retain(log, 2**62, retention_ms=1000)) == 12


def test_deleting_records_moves_the_start_and_drops_whole_segments(log: Log) -> None:
    put(log, batch_of(5, size=2))
    assert delete_records_before(log, 12) == 12
    assert log.log_start == 12
    assert delete_records_before(log, 3) == 12
    assert [segment.base for segment in log.segments] == [10]
    with pytest.raises(OffsetOutOfRange):
        log.read(11, 100, 15)
    with pytest.raises(OffsetOutOfRange):
        delete_records_before(log, 16)


def test_producers_survive_the_deletion_of_their_records(log: Log) -> None:
    put(log, batch_of(producer_id=4, sequence=0, timestamp=NOW))
    put(log, batch_of(size=40, timestamp=NOW))
    delete_records_before(log, log.log_end)
    assert log.append(batch_of(producer_id=4, sequence=0), 0, NOW) == (10, -1)
    assert log.producers.expire(NOW + DAY, DAY) == [4]
    assert log.append(batch_of(producer_id=4, sequence=0), 0, NOW) == (12, -1)


def test_the_name_of_the_first_segment_is_on_disk_before_another_follows_or_others_go(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the power failed, the log would seem to begin with the next one."""
    synced: list[list[int]] = []
    monkeypatch.setattr(
        segments, "sync_folder", lambda folder: synced.append(sorted(log.segments.bases))
    )
    delete_records_before(log, 2)
    # Whatever is left may have been made since the folder was last forced to disk.
    assert [bases[0] for bases in synced] == [0]
    synced.clear()
    restart_at(log, 10)
    for _ in range(4):
        put(log, batch_of(size=30))
    assert len(log.segments) == 4
    assert synced == [[10]]
