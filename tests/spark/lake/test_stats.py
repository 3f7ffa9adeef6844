"""Bounds that readers skip files by: never narrower than the values."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from moldau.spark.lake.stats import file_stats, unordered_columns


def stats_of(table: pa.Table, row_group_size: int = 3) -> dict[str, Any]:
    output = io.BytesIO()
    pq.write_table(table, output, row_group_size=row_group_size)
    unordered: set[str] = set()
    for batch in table.to_batches():
        unordered |= unordered_columns(batch)
    return file_stats(pq.ParquetFile(output).metadata, table.schema, unordered)


def one_column(kind: pa.DataType, values: list[Any]) -> dict[str, Any]:
    return stats_of(pa.table({"c": pa.array(values, kind)}))


@given(st.lists(st.none() | st.text(max_size=50), min_size=1))
def test_bounds_of_text_enclose_it_in_the_order_of_its_bytes(values: list[str | None]) -> None:
    stats = one_column(pa.string(), values)
    assert stats["numRecords"] == len(values)
    assert stats["nullCount"] == {"c": values.count(None)}
    low, high = stats["minValues"].get("c"), stats["maxValues"].get("c")
    for value in values:
        if value is not None:
            assert low is None or low.encode() <= value.encode()
            assert high is None or high.encode() >= value.encode()


@given(st.lists(st.none() | st.datetimes(timezones=st.just(UTC)), min_size=1))
def test_bounds_of_times_enclose_them_in_milliseconds(values: list[datetime | None]) -> None:
    stats = one_column(pa.timestamp("us", tz="UTC"), values)
    for value in values:
        if value is not None and "c" in stats["minValues"]:
            assert datetime.fromisoformat(stats["minValues"]["c"]) <= value
        if value is not None and "c" in stats["maxValues"]:
            assert datetime.fromisoformat(stats["maxValues"]["c"]) >= value


@given(st.lists(st.none() | st.floats(width=32), min_size=1))
def test_bounds_of_numbers_enclose_them_and_are_left_out_where_one_is_not_a_number(
    values: list[float | None],
) -> None:
    stats = one_column(pa.float32(), values)
    numbers = [value for value in values if value is not None]
    if any(value != value for value in numbers):
        assert "c" not in stats["minValues"] | stats["maxValues"]
    for value in numbers:
        assert stats["minValues"].get("c", value) <= value or value != value
        assert stats["maxValues"].get("c", value) >= value or value != value


def test_plain_values_have_plain_bounds() -> None:
    table = pa.table(
        {
            "i": [3, None, 1, 2],
            "d": [date(2024, 1, 2), date(2023, 5, 1), None, None],
            "e": pa.array([Decimal("1.00"), Decimal("7.00"), None, None], pa.decimal128(9, 2)),
            "b": [b"x", b"y", b"z", None],
            "s": [{"x": 5, "deep": {"y": "b"}}, None, {"x": 4, "deep": None}, None],
            "l": [[1], [2], None, []],
        }
    )
    assert stats_of(table) == {
        "numRecords": 4,
        "minValues": {"i": 1, "d": "2023-05-01", "e": 1, "s": {"x": 4, "deep": {"y": "b"}}},
        "maxValues": {"i": 3, "d": "2024-01-02", "e": 7, "s": {"x": 5, "deep": {"y": "b"}}},
        "nullCount": {"i": 1, "d": 2, "e": 2, "b": 1, "s": {"x": 2, "deep": {"y": 3}}},
    }


def test_times_beyond_python_s_calendar_have_no_bounds() -> None:
    far = (datetime(9999, 12, 31, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days + 400
    micros = pa.array([far * 86_400_000_000, 0], pa.int64())
    stats = stats_of(pa.table({"c": micros.cast(pa.timestamp("us", tz="UTC"))}))
    assert stats["minValues"] == stats["maxValues"] == {}
    last = datetime.max.replace(tzinfo=UTC) - timedelta(microseconds=1)
    assert "c" not in one_column(pa.timestamp("us", tz="UTC"), [last])["maxValues"]
