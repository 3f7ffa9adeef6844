from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.records.batch import (
    HEADER_SIZE,
    BatchError,
    BatchTooLarge,
    InvalidRecord,
    check_batch,
    read_header,
)
from moldau.records.compression import Codec
from moldau.records.record import (
    EndMarker,
    Record,
    assemble,
    build_batch,
    build_end_marker,
    build_plain_batch,
    read_end_marker,
    records_of,
)

some_bytes = st.none() | st.binary(max_size=50)
some_headers = st.lists(st.tuples(st.text(max_size=8), some_bytes), max_size=3)
times = st.integers(-(2**40), 2**41)


@st.composite
def some_records(draw: st.DrawFn) -> list[Record]:
    base = draw(st.integers(0, 2**50))
    count = draw(st.integers(1, 8))
    return [
        Record(base + n, draw(times), draw(some_bytes), draw(some_bytes), draw(some_headers))
        for n in range(count)
    ]


@given(some_records(), st.sampled_from(Codec))
def test_records_come_back_as_they_were(records: list[Record], codec: Codec) -> None:
    data = build_batch(records, codec)
    check_batch(data)
    assert list(records_of(data)) == records


@given(
    st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)), max_size=80),
    st.integers(-1, 1 << 45),
    st.booleans(),
)
def test_a_plain_batch_is_the_batch_of_the_same_records(
    pairs: list[tuple[bytes, bytes | None]], timestamp: int, is_transactional: bool
) -> None:
    if not pairs:
        timestamp = -1
    records = [Record(n, timestamp, key, value) for n, (key, value) in enumerate(pairs)]
    producer_id, epoch = (7, 3) if is_transactional else (-1, -1)
    plain = build_plain_batch(
        pairs,
        timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=is_transactional,
    )
    assert plain == build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=is_transactional,
    )


def test_records_of_an_append_time_batch_carry_the_time_of_the_append() -> None:
    data = build_batch([Record(0, 5, None, b"a"), Record(1, 6, None, b"b")], append_time_ms=99)
    assert [record.timestamp for record in records_of(data)] == [99, 99]


@given(some_records(), st.data())
def test_damaged_records_raise_batch_errors_only(
    records: list[Record], data: st.DataObject
) -> None:
    plain = build_batch(records)
    body = bytearray(plain[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    broken = assemble(read_header(plain), body)
    try:
        for _ in records_of(broken):
            pass
    except BatchError:
        pass


@given(st.binary(max_size=200), st.integers(0, 7), st.integers(-1, 1000))
def test_arbitrary_sections_raise_batch_errors_only(body: bytes, codec: int, count: int) -> None:
    header = read_header(build_batch([Record(0, 0, None, None)]))
    data = assemble(header._replace(attributes=codec, count=count), body)
    try:
        for _ in records_of(data, max_decompressed=10_000):
            pass
    except BatchError:
        pass


def test_bytes_after_the_last_record_are_invalid() -> None:
    plain = build_batch([Record(0, 0, None, b"v")])
    with pytest.raises(InvalidRecord):
        list(records_of(assemble(read_header(plain), bytes(plain[HEADER_SIZE:]) + b"\0")))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_that_expands_too_far_is_refused(codec: Codec) -> None:
    data = build_batch([Record(0, 0, None, bytes(1_000_000))], codec)
    assert len(data) < 100_000
    with pytest.raises(BatchTooLarge):
        list(records_of(data, max_decompressed=500_000))


def test_end_markers_are_control_records() -> None:
    data = build_end_marker(
        commits=True, coordinator_epoch=4, producer_id=9, producer_epoch=1, timestamp=77
    )
    header = check_batch(data)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    assert read_end_marker(data) == EndMarker(True, 4)


def test_other_control_records_are_no_end_markers() -> None:
    leader_change = build_batch([Record(0, 0, b"\0\0\0\2", b"")], is_control=True)
    assert read_end_marker(leader_change) is None
    assert read_end_marker(build_batch([], is_control=True)) is None
    for key in (None, b"", b"\0\0\0"):
        with pytest.raises(InvalidRecord):
            read_end_marker(build_batch([Record(0, 0, key, b"")], is_control=True))
