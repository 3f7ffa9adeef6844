from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.records.batch import (
    HEADER,
    HEADER_SIZE,
    BatchError,
    CorruptBatch,
    InvalidRecord,
    batches,
    check_batch,
    read_header,
)
from moldau.records.compression import Codec
from moldau.records.record import Record, assemble, build_batch


def batch(count: int = 3) -> bytearray:
    return build_batch([Record(n, 1000 + n, b"key", b"value") for n in range(count)])


def test_the_header_is_61_bytes_and_says_what_was_built() -> None:
    data = build_batch(
        [Record(40, 7, b"k", b"v"), Record(41, 9, None, None)],
        Codec.ZSTD,
        leader_epoch=5,
        producer_id=77,
        producer_epoch=2,
        base_sequence=10,
        is_transactional=True,
    )
    header = check_batch(data)
    assert HEADER_SIZE == 61
    assert header.size == len(data)
    assert (header.base_offset, header.last_offset, header.count) == (40, 41, 2)
    assert (header.base_timestamp, header.max_timestamp) == (7, 9)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 2, 10)
    assert header.leader_epoch == 5
    assert header.codec == Codec.ZSTD
    assert header.is_transactional
    assert not header.is_control
    assert not header.uses_append_time


def test_a_batch_is_found_inside_a_larger_buffer() -> None:
    data = b"before" + bytes(batch()) + b"after"
    assert check_batch(data, 6).size == len(batch())


def test_offset_and_leader_epoch_can_be_set_without_breaking_the_crc() -> None:
    data = batch()
    struct.pack_into(">q", data, 0, 123456)
    struct.pack_into(">i", data, 12, 9)
    header = check_batch(data)
    assert (header.base_offset, header.leader_epoch) == (123456, 9)


@pytest.mark.parametrize("position", [21, 30, 60, 61, 70])
def test_a_flipped_bit_under_the_crc_is_corruption(position: int) -> None:
    data = batch()
    data[position] ^= 1
    with pytest.raises(CorruptBatch):
        check_batch(data)


def test_a_batch_that_is_cut_short_is_corruption() -> None:
    data = bytes(batch())
    for size in (0, 1, HEADER_SIZE - 1, HEADER_SIZE, len(data) - 1):
        with pytest.raises(CorruptBatch):
            check_batch(data[:size])


def test_another_magic_is_invalid() -> None:
    data = batch()
    data[16] = 1
    with pytest.raises(InvalidRecord):
        check_batch(data)


@pytest.mark.parametrize(
    ("count", "delta"), [(0, -1), (0, 0), (2, 2), (4, 2), (3, 3), (-1, -2), (1_000_000, 999_999)]
)
def test_counts_that_lie_are_invalid(count: int, delta: int) -> None:
    header = read_header(batch())._replace(count=count, last_offset_delta=delta)
    data = assemble(header, bytes(batch()[HEADER_SIZE:]))
    with pytest.raises(InvalidRecord):
        check_batch(data)


def test_what_compaction_leaves_passes_only_where_it_may_come_from() -> None:
    thinned = build_batch([Record(7, 1, b"k", b"v")], base_offset=5, last_offset_delta=9)
    empty = build_batch([], base_offset=5, last_offset_delta=9)
    for data in (thinned, empty):
        assert check_batch(data, from_producer=False).last_offset == 14
        with pytest.raises(InvalidRecord):
            check_batch(data)


def test_batches_walks_from_header_to_header() -> None:
    data = bytes(batch(1) + batch(2) + batch(3))
    assert [header.count for _, header in batches(data)] == [1, 2, 3]
    with pytest.raises(CorruptBatch):
        list(batches(data[:-1]))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_batch_errors_only(data: bytes) -> None:
    for parse in (check_batch, lambda b: list(batches(b))):
        try:
            parse(data)
        except BatchError:
            pass


@given(st.tuples(*[st.integers(-3, 70)] * 3), st.binary(max_size=80))
def test_arbitrary_headers_raise_batch_errors_only(
    numbers: tuple[int, int, int], body: bytes
) -> None:
    length, count, delta = numbers
    data = HEADER.pack(0, length, 0, 2, 0, 0, delta, 0, 0, -1, -1, -1, count) + body
    try:
        check_batch(data)
    except BatchError:
        pass
