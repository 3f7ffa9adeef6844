"""Records as the bytes that they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.records.batch import InvalidRecord, check_batch, read_header
from moldau.records.compression import Codec
from moldau.records.raw import DELETE_HORIZON_BIT, raw_records, rebuild
from moldau.records.record import Record, build_batch, payload_of, records_of

NOW = 1_700_000_000_000

many_records = st.lists(
    st.tuples(
        st.integers(1, 300),
        st.integers(-(10**10), 10**10),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=8,
)


Described = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def made(described: list[Described]) -> list[Record]:
    records = []
    offset = 0
    for gap, delta, key, value, headers in described:
        records.append(Record(offset, NOW + delta, key, value, headers))
        offset += gap
    return records


@given(many_records, st.sampled_from(list(Codec)))
def test_raw_records_are_the_records(described: list[Described], codec: Codec) -> None:
    records = made(described)
    batch = build_batch(records, codec, base_offset=0)
    header = read_header(batch)
    raw = raw_records(payload_of(batch, 0, header), header.count)
    assert [(each[0], each[1], each[2]) for each in raw] == [
        (record.offset, record.key, record.value is None) for record in records
    ]


@given(
    many_records,
    st.sampled_from(list(Codec)),
    st.sets(st.integers(0, 7)),
    st.none() | st.integers(0, 2**42),
)
def test_a_rebuilt_batch_holds_what_was_kept_unchanged(
    described: list[Described], codec: Codec, keep: set[int], horizon: int | None
) -> None:
    records = made(described)
    batch = build_batch(records, codec, base_offset=0)
    header = read_header(batch)
    payload = payload_of(batch, 0, header)
    raw = raw_records(payload, header.count)
    kept = [each for number, each in enumerate(raw) if number in keep]
    rebuilt = rebuild(header, payload, kept, horizon)
    after = check_batch(rebuilt, from_producer=False)
    expected = [record for number, record in enumerate(records) if number in keep]
    assert [record[:4] for record in records_of(rebuilt)] == [record[:4] for record in expected]
    assert (after.base_offset, after.last_offset) == (header.base_offset, header.last_offset)
    newest = max((record.timestamp for record in expected), default=header.max_timestamp)
    assert after.max_timestamp == newest
    if horizon is not None:
        assert after.attributes & DELETE_HORIZON_BIT
        assert after.base_timestamp == horizon


@given(st.binary(max_size=200), st.integers(0, 20))
def test_nonsense_is_refused_and_nothing_else_happens(payload: bytes, count: int) -> None:
    try:
        found = raw_records(payload, count)
    except InvalidRecord:
        return
    assert len(found) == count
    assert all(0 <= start < body <= stop <= len(payload) for *_, start, body, stop in found)


def test_a_key_that_reaches_over_its_record_is_refused() -> None:
    batch = build_batch([Record(0, NOW, b"key", b"value", ())])
    payload = bytearray(payload_of(batch, 0, read_header(batch)))
    payload[4] = 0x7E
    with pytest.raises(InvalidRecord):
        raw_records(bytes(payload), 1)
