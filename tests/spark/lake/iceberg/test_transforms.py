"""Partition transforms, against those of pyiceberg."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    DateType,
    IcebergType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from moldau.spark.lake.errors import LakeError, SchemaConflict
from moldau.spark.lake.iceberg.transforms import Transform, parse_transforms

ZONED = pa.timestamp("us", tz="UTC")
LONGS = st.integers(-(1 << 63) + (1 << 20), (1 << 63) - 1)
TIMES = st.integers(-(10**16), 10**16)
DAYS = st.integers(-700_000, 2_000_000)


@pytest.mark.parametrize(
    ("name", "kind", "source", "values"),
    [
        *((f"{unit}s(c)", ZONED, TimestamptzType(), TIMES) for unit in ("year", "month")),
        *((f"{unit}s(c)", ZONED, TimestamptzType(), TIMES) for unit in ("day", "hour")),
        ("days(c)", pa.timestamp("us"), TimestampType(), TIMES),
        *((f"{unit}s(c)", pa.date32(), DateType(), DAYS) for unit in ("year", "month", "day")),
        ("bucket(16, c)", pa.int64(), LongType(), LONGS),
        ("bucket(7, c)", ZONED, TimestamptzType(), TIMES),
        ("bucket(5, c)", pa.date32(), DateType(), DAYS),
        ("bucket(100, c)", pa.string(), StringType(), st.text(max_size=40)),
        ("truncate(10, c)", pa.int64(), LongType(), LONGS),
        ("truncate(3, c)", pa.string(), StringType(), st.text(max_size=8)),
    ],
)
def test_values_are_those_of_other_engines(
    name: str, kind: pa.DataType, source: IcebergType, values: st.SearchStrategy[Any]
) -> None:
    transform = Transform.parse(name)
    kinds = {"bucket": f"bucket[{transform.width}]", "truncate": f"truncate[{transform.width}]"}
    oracle = parse_transform(kinds.get(transform.kind, transform.kind)).transform(source)

    @given(st.lists(st.none() | values, min_size=1, max_size=20))
    def compare(given_values: list[Any]) -> None:
        is_number = pa.types.is_temporal(kind)
        width = pa.int32() if pa.types.is_date(kind) else pa.int64()
        column = pa.array(given_values, width if is_number else kind).cast(kind)
        found = transform.values(column).to_pylist()
        wanted = [None if each is None else oracle(each) for each in given_values]
        assert found == wanted
        # A slice of a larger batch has its own first row.
        assert transform.values(column[1:]).to_pylist() == wanted[1:]

    compare()


def test_a_transform_reads_as_it_is_written() -> None:
    for text in ("city", "days(time)", "bucket(16, id)", "truncate(4, name)", "years(time)"):
        assert str(Transform.parse(text)) == text
    assert Transform.parse(" bucket( 8 ,id ) ") == Transform("bucket", "id", 8)
    assert Transform.parse("day(t)").name == "t_day"
    assert Transform.parse("bucket(2, id)").name == "id_bucket"
    for wrong in ("", "weeks(t)", "days(3, t)", "bucket(id)", "bucket(0, id)", "days(t", "f(a,b)"):
        with pytest.raises(LakeError, match="is neither a column nor one of"):
            Transform.parse(wrong)
    with pytest.raises(LakeError, match="both named 't_day'"):
        parse_transforms(["days(t)", "day(t)"])


def test_a_column_that_does_not_suit_is_refused() -> None:
    schema = pa.schema([("t", ZONED), ("d", pa.date32()), ("f", pa.float64()), ("t_day", ZONED)])
    Transform.parse("hours(t)").require("shop.orders", schema)
    for text, problem in (
        ("hours(d)", "is date32.*which hours\\(d\\) cannot take"),
        ("f", "is double, which f cannot take"),
        ("bucket(4, f)", "cannot take"),
        ("missing", "does not exist"),
        ("days(t)", "'t_day' has the name of the partitions"),
    ):
        with pytest.raises(SchemaConflict, match=problem):
            Transform.parse(text).require("shop.orders", schema)


def test_folders_are_named_for_people() -> None:
    moment = datetime(2024, 2, 29, 13, 30, tzinfo=UTC)
    column = pa.array([moment, None], ZONED)
    shown = {}
    for text in ("years(t)", "months(t)", "days(t)", "hours(t)"):
        transform = Transform.parse(text)
        first, second = transform.values(column).to_pylist()
        assert transform.text(second) is None
        shown[text] = transform.text(first)
    assert list(shown.values()) == ["2024", "2024-02", "2024-02-29", "2024-02-29-13"]
    assert Transform.parse("days(t)").text(-1) == "1969-12-31"
