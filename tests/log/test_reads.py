"""Reads by offset and lookups by time."""

from __future__ import annotations

import os

import pytest

from moldau.log.errors import (
    OffsetOutOfRange,
)
from moldau.log.log import Log
from moldau.log.lookup import max_timestamp, offset_for_time
from moldau.log.retention import delete_records_before
from moldau.records.compression import Codec
from tests.log.making import (
    NOW,
    batch_of,
    configured,
    content,
    headers,
    put,
)

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
