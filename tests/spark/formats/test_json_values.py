"""JSON to columns."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from moldau.spark.formats.errors import FormatError
from moldau.spark.formats.json_values import JsonDecoder, json_type


def decoder(kind: DataType, nullable: bool = True) -> JsonDecoder:
    return JsonDecoder(StructType([StructField("x", kind, nullable)]))


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (BooleanType(), "true", True),
        (ByteType(), "-128", -128),
        (IntegerType(), "7", 7),
        (LongType(), str(2**63 - 1), 2**63 - 1),
        (DoubleType(), "1e3", 1000.0),
        (DoubleType(), "3", 3.0),
        (DecimalType(10, 2), "1.25", Decimal("1.25")),
        (DecimalType(10, 2), '"1.25"', Decimal("1.25")),
        (StringType(), '"\\u00e9\\ud83d\\ude00"', "é😀"),
        (BinaryType(), '"AAE="', b"\x00\x01"),
        (DateType(), '"2024-02-29"', date(2024, 2, 29)),
        (
            TimestampType(),
            '"2024-02-29T12:00:00.123Z"',
            datetime(2024, 2, 29, 12, 0, 0, 123000, UTC),
        ),
        (TimestampType(), '"2024-02-29T14:00:00+02:00"', datetime(2024, 2, 29, 12, tzinfo=UTC)),
        (TimestampType(), '"2024-02-29T12:00:00"', datetime(2024, 2, 29, 12, tzinfo=UTC)),
        (TimestampNTZType(), '"2024-02-29T12:00:00"', datetime(2024, 2, 29, 12)),
        (ArrayType(IntegerType()), "[1, null]", [1, None]),
        (MapType(StringType(), LongType()), '{"a": 1}', [("a", 1)]),
        (StructType([StructField("y", LongType())]), '{"y": 1, "z": 2}', {"y": 1}),
        (StructType([StructField("y", LongType())]), "{}", {"y": None}),
        (StringType(), "null", None),
    ],
    ids=str,
)
def test_a_value_of_each_type_is_read(kind: DataType, text: str, expected: Any) -> None:
    (column,), bad = decoder(kind).decode([b'{"x": %s, "more": [{}]}' % text.encode()])
    assert not bad
    assert column.to_pylist() == [expected]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (IntegerType(), b'{"x": "7"}', "Expected `int | null`, got `str` - at `$.x`"),
        (IntegerType(), b'{"x": 3000000000}', "<= 2147483647"),
        (IntegerType(), b'{"x": 1.5}', "$.x"),
        (StringType(), b'{"x": 7}', "$.x"),
        (TimestampType(), b'{"x": 1714564800123}', "$.x"),
        (TimestampType(), b'{"x": "noon"}', "$.x"),
        (DecimalType(4, 2), b'{"x": "123456.1"}', "x: "),
        (LongType(), b"", "not JSON"),
        (LongType(), b"[]", "object"),
        (LongType(), b"null", "object"),
        (LongType(), b'{"x": 1} {"x": 2}', "not JSON"),
        (LongType(), b'{"x": 1', "not JSON"),
        (StringType(), b'{"x": "\xff"}', "not JSON"),
        (LongType(), b'{"more": ' + b"[" * 100_000, "not JSON"),
    ],
)
def test_what_does_not_fit_is_null_and_says_why(kind: DataType, value: bytes, reason: str) -> None:
    fine = b'{"x": null}'
    (column,), bad = decoder(kind).decode([fine, value, fine])
    assert column.to_pylist() == [None] * 3
    assert list(bad) == [1]
    assert reason in bad[1]


def test_a_record_without_a_value_is_a_row_of_nulls() -> None:
    (column,), bad = decoder(StringType(), nullable=False).decode([b'{"x": "a"}', None])
    assert column.to_pylist() == ["a", None]
    assert not bad


def test_a_field_that_must_be_there_is_missed() -> None:
    _, bad = decoder(StringType(), nullable=False).decode([b"{}", b'{"x": null}', b'{"x": ""}'])
    assert "missing required field `x`" in bad[0]
    assert "Expected `str`, got `null`" in bad[1]
    assert 2 not in bad


def test_fields_may_have_any_name() -> None:
    schema = StructType([StructField(name, LongType()) for name in ("a-b", "class", "é.x", "_1")])
    columns, bad = JsonDecoder(schema).decode([b'{"a-b": 1, "class": 2, "\xc3\xa9.x": 3, "_1": 4}'])
    assert not bad
    assert [column.to_pylist() for column in columns] == [[1], [2], [3], [4]]


def test_a_type_that_json_cannot_have_is_refused() -> None:
    with pytest.raises(FormatError, match="JSON has no interval"):
        json_type(CalendarIntervalType())
    with pytest.raises(FormatError, match="JSON has no map"):
        json_type(MapType(LongType(), LongType()))


SCHEMA = StructType(
    [
        StructField("text", StringType()),
        StructField("number", IntegerType()),
        StructField("time", TimestampType()),
        StructField("money", DecimalType(6, 2)),
        StructField("list", ArrayType(DoubleType())),
        StructField("inner", StructType([StructField("x", DateType())])),
        StructField("map", MapType(StringType(), BinaryType())),
    ]
)
PARTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.datetimes().map(datetime.isoformat),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "number", "x", "é"]), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(SCHEMA.fieldNames()), PARTS).map(
    lambda value: json.dumps(value).encode()
)


@given(st.lists(st.none() | st.binary(max_size=40) | OBJECTS, max_size=8))
def test_any_bytes_are_a_row_or_a_reason(values: list[bytes | None]) -> None:
    columns, bad = JsonDecoder(SCHEMA).decode(values)
    assert all(len(column) == len(values) for column in columns)
    for column in columns:
        column.validate(full=True)
    for row, value in enumerate(values):
        if value is not None and not value.lstrip().startswith(b"{"):
            assert row in bad
