"""Avro with the header of the schema store, to columns and back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.avro import encode_avro, parse_avro
from moldau.schemas import SchemaNotFound, pack_header
from moldau.schemas.header import pack_guid
from moldau.spark.formats.avro_types import avro_schema_of, spark_schema_of
from moldau.spark.formats.avro_values import AvroDecoder, AvroEncoder
from moldau.spark.formats.errors import FormatError, NewFields

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["TEA", "COFFEE"]}},
        {"name": "other_kind", "type": ["null", "Kind"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "table", "type": "int"}],
            },
        },
    ],
}
WRITTEN: dict[str, Any] = {
    "id": 1,
    "note": None,
    "at": datetime(2024, 5, 1, 12, tzinfo=UTC),
    "day": date(2024, 5, 1),
    "clock": 1000,
    "price": Decimal("2.50"),
    "kind": "TEA",
    "other_kind": None,
    "tags": ["hot"],
    "counts": {"sugar": 2},
    "place": {"table": 7},
}
NEWER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "waiter", "type": "string", "default": "nobody"},
    ],
}


def unknown(schema_id: int | str) -> str:
    raise SchemaNotFound(f"no schema has the id {schema_id}")


def decoder(schema: Any, known: dict[int, Any]) -> AvroDecoder:
    text = json.dumps(schema)
    texts = {schema_id: json.dumps(each) for schema_id, each in known.items()}
    return AvroDecoder(spark_schema_of(text), text, texts, unknown)


def encode(schema: Any, value: Any, schema_id: int) -> bytes:
    return encode_avro(parse_avro(schema), value, "orders", pack_header(schema_id))


def test_a_record_with_all_kinds_of_fields_becomes_a_row() -> None:
    plain_clock = json.loads(json.dumps(ORDER).replace(', "logicalType": "time-millis"', ""))
    value = encode(plain_clock, WRITTEN, 3)
    columns, bad = decoder(ORDER, {3: ORDER}).decode([value])
    assert not bad
    row = {name: column[0].as_py() for name, column in zip(WRITTEN, columns, strict=True)}
    assert row == WRITTEN | {"counts": [("sugar", 2)]}


def test_values_of_other_versions_are_seen_through_the_readers_schema() -> None:
    plain_clock = json.loads(json.dumps(ORDER).replace(', "logicalType": "time-millis"', ""))
    values = [encode(plain_clock, WRITTEN, 1), encode(NEWER, {"id": 2, "waiter": "Max"}, 2)]
    columns, bad = decoder(NEWER, {1: plain_clock, 2: NEWER}).decode(values)
    assert not bad
    assert [column.to_pylist() for column in columns] == [[1, 2], ["nobody", "Max"]]


def test_fields_of_a_version_that_was_not_known_are_never_dropped() -> None:
    fine, richer = {"id": 2, "waiter": "Max"}, {"id": 3, "waiter": "Eva", "tip": 0.5}
    with_tip = {**NEWER, "fields": [*NEWER["fields"], {"name": "tip", "type": "double"}]}
    texts: dict[int | str, str] = {7: json.dumps(with_tip), 8: json.dumps(NEWER)}
    text = json.dumps(NEWER)
    reading = AvroDecoder(spark_schema_of(text), text, {2: text}, texts.__getitem__, "Do this")
    values = [encode(NEWER, fine, 2), None, encode(NEWER, fine, 8)]
    assert reading.decode(values)[1] == {}
    values.append(encode(with_tip, richer, 7))
    for _ in range(2):
        with pytest.raises(NewFields, match=r"lacks: tip \(double\); .* id 7\. Do this") as raised:
            reading.decode(values)
        assert raised.value.row == 3
    # Known when the schema was chosen: then it is left out on purpose.
    known = AvroDecoder(spark_schema_of(text), text, {2: text, 7: texts[7]}, texts.__getitem__)
    assert known.decode(values[3:])[0][1].to_pylist() == ["Eva"]


def test_what_cannot_be_read_says_why() -> None:
    fine = encode(NEWER, {"id": 2, "waiter": "Max"}, 2)
    values = [fine, b"{nothing}", b"", None, pack_header(9) + b"\x02", fine + b"x", fine[:-1]]
    columns, bad = decoder(NEWER, {2: NEWER}).decode(values)
    assert [column.to_pylist() for column in columns] == [[2] + [None] * 6, ["Max"] + [None] * 6]
    reasons = (
        "begins with 0",
        "too few",
        "no schema has the id 9",
        "left over",
        "Avro",
    )
    assert 3 not in bad
    for (row, reason), part in zip(sorted(bad.items()), reasons, strict=True):
        assert part in reason, row


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_any_bytes_are_a_row_or_a_reason(values: list[bytes]) -> None:
    plain_clock = json.loads(json.dumps(ORDER).replace(', "logicalType": "time-millis"', ""))
    reading = decoder(ORDER, {1: plain_clock, 2: NEWER})
    for prefix in (b"", pack_header(1), pack_header(2)):
        columns, bad = reading.decode([prefix + value for value in values])
        assert all(len(column) == len(values) for column in columns)
        assert set(bad) <= set(range(len(values)))


def test_columns_become_a_schema_that_reads_back() -> None:
    schema = spark_schema_of(json.dumps(ORDER))
    derived = avro_schema_of(schema, "order-totals")
    assert derived["name"] == "order_totals"
    assert spark_schema_of(json.dumps(derived)) == schema
    (value,) = AvroEncoder(json.dumps(derived), pack_header(4), "totals").encode([WRITTEN])
    columns, bad = decoder(derived, {4: derived}).decode([value])
    assert not bad
    assert columns[0].to_pylist() == [1]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("string", "must be a record"),
        ({"type": "nonsense"}, "not an Avro schema"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]},
            "a union of int, string has no single column type",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            "R contains itself",
        ),
    ],
)
def test_a_schema_that_columns_cannot_have_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        spark_schema_of(json.dumps(schema))


def test_a_schema_may_be_named_in_a_header() -> None:
    guid, other = str(UUID(int=1)), str(UUID(int=2))
    texts: dict[int | str, str] = {other: json.dumps(NEWER)}
    text = json.dumps(NEWER)
    reading = AvroDecoder(spark_schema_of(text), text, {1: text}, texts.__getitem__, "", {guid: 1})
    bare = encode(NEWER, {"id": 2, "waiter": "Max"}, 1)[5:]
    names = [pack_guid(guid), pack_guid(other), pack_header(1), None, b"\x01"]
    columns, bad = reading.decode([bare, bare, bare, pack_guid(guid) + bare, bare], names)
    assert columns[0].to_pylist() == [2, 2, 2, 2, None]
    assert list(bad) == [4]
