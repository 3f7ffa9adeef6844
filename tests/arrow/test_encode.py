"""Arrow columns to record batches: our own reader, and Java's partitioner, agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.arrow.encode import Column, Rows, partitions_by_key, sections
from moldau.client.producer.partitioner import murmur2
from moldau.records.batch import BatchHeader
from moldau.records.record import assemble, records_of

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

texts = st.none() | st.binary(max_size=300)
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50)), max_size=4
)
rows = st.lists(st.tuples(texts, texts, headers, st.integers(0, 3)), max_size=40)


def columns(given: list[tuple[bytes | None, bytes | None, object, int]]) -> list[pa.Array]:
    lists = [
        None if own is None else [{"key": name, "value": value} for name, value in own]  # type: ignore[attr-defined]
        for _, _, own, _ in given
    ]
    return [
        pa.array([key for key, *_ in given], pa.binary()),
        pa.array([value for _, value, *_ in given], pa.binary()),
        pa.array(lists, pa.list_(HEADER)),
    ]


@given(rows, st.integers(1, 2000), st.integers(0, 3))
def test_records_are_what_the_rows_were(
    given: list[tuple[bytes | None, bytes | None, object, int]], most_bytes: int, skipped: int
) -> None:
    # A slice: Arrow's buffers then hold more than the rows.
    whole = [array.slice(min(skipped, len(given))) for array in columns(given)]
    given = given[skipped:]
    encoded = Rows.of(len(given), *whole)
    homes = np.array([home for *_, home in given], np.int32)
    found: dict[int, list[tuple[object, object, object]]] = {}
    for home, records, count in sections(encoded, homes, most_bytes):
        assert len(records) <= most_bytes or count == 1
        header = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, 5, 5, -1, -1, -1, count)
        read = list(records_of(assemble(header, records)))
        assert [record.offset for record in read] == list(range(count))
        assert {record.timestamp for record in read} == {5}
        found.setdefault(home, []).extend(
            (record.key, record.value, list(record.headers)) for record in read
        )
    expected: dict[int, list[tuple[object, object, object]]] = {}
    for key, value, own, home in given:
        expected.setdefault(home, []).append((key, value, own or []))
    assert found == expected


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 50))
def test_a_key_has_its_place_where_javas_client_puts_it(keys: list[bytes], count: int) -> None:
    homes = partitions_by_key(Column.of(pa.array(keys, pa.binary())), count, 0, 1)
    assert homes.tolist() == [(murmur2(key) & 0x7FFFFFFF) % count for key in keys]


def test_rows_without_a_key_take_turns() -> None:
    homes = partitions_by_key(Column.empty(7), 3, 2, 2)
    assert homes.tolist() == [2, 2, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_texts_of_any_width_are_taken(kind: pa.DataType) -> None:
    encoded = Rows.of(2, None, pa.array(["é", None], kind), None)
    ((_, records, count),) = sections(encoded, np.zeros(2, np.int32), 1000)
    header = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, 5, 5, -1, -1, -1, count)
    read = list(records_of(assemble(header, records)))
    assert [record.value for record in read] == ["é".encode(), None]
