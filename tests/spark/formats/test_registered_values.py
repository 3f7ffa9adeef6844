"""JSON Schema and Protobuf to columns and back, without a Spark session."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.arrow.columns import ARROW_TYPES
from moldau.schemas import RegisteredSchema, SchemaNotFound, pack_header
from moldau.schemas.header import pack_guid
from moldau.schemas.json_schema.schema import JsonSchema
from moldau.schemas.protobuf.schema import ProtobufSchema
from moldau.schemas.schema import Dependency, SchemaType
from moldau.spark.formats.errors import FormatError, NewFields
from moldau.spark.formats.json_schema_types import json_schema_of, spark_schema_of_json
from moldau.spark.formats.protobuf_types import (
    message_of,
    numbers_of,
    proto_of,
    spark_schema_of_message,
)
from moldau.spark.formats.registered_values import (
    ProtobufEncoding,
    RegisteredDecoder,
    extra_columns,
    registered_columns,
)
from moldau.spark.formats.schema_names import schema_names

ORDER = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "place.proto";
message Order { int64 id = 1; optional string item = 2; repeated string tags = 3;
map<string, double> prices = 4; Place at = 5; google.protobuf.Timestamp when = 6;
enum State { NEW = 0; DONE = 1; } State state = 7; uint64 big = 8; }"""
PLACE = Dependency("place.proto", 'syntax = "proto3"; message Place { string city = 1; }')
WHEN = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
JSON_ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "item": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        "at": {"$ref": "#/definitions/place"},
        "when": {"type": "string", "format": "date-time"},
        "state": {"enum": ["NEW", "DONE"]},
        "either": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
    },
    "required": ["id"],
    "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def rows(columns: list[pa.Array], schema: StructType) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_arrays(columns, names=schema.fieldNames())
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def never(schema_id: int | str) -> RegisteredSchema:
    raise SchemaNotFound(f"no schema has the id {schema_id}")


def test_columns_of_a_json_schema() -> None:
    found = spark_schema_of_json(json.dumps(JSON_ORDER))
    assert found.simpleString() == (
        "struct<id:bigint,item:string,tags:array<string>,prices:map<string,double>,"
        "at:struct<city:string>,when:timestamp,state:string,either:boolean>"
    )
    assert [field.name for field in found.fields if not field.nullable] == ["id"]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string"}, "must describe an object"),
        ({"properties": {"a": {}}}, "any type"),
        ({"properties": {"a": True}}, "any value"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "single column type"),
        ({"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}, "union"),
        ({"properties": {"a": {"$ref": "#"}}}, "contains itself"),
        ({"properties": {"a": {"type": "array"}}}, "array"),
    ],
)
def test_a_json_schema_without_columns(schema: Any, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        spark_schema_of_json(json.dumps(schema))


def test_json_values_lose_their_header() -> None:
    text = json.dumps(JSON_ORDER)
    schema = spark_schema_of_json(text)
    decoder = RegisteredDecoder("json-schema", schema, text, (), {7: ""}, never)
    fine = {"id": 1, "item": "tea", "at": {"city": "Praha"}, "when": WHEN.isoformat()}
    columns, bad = decoder.decode(
        [pack_header(7) + json.dumps(fine).encode(), None, b"{}", pack_header(7) + b"{}",
         pack_header(9) + b"{}"],
    )  # fmt: skip
    (first, *_) = rows(columns, schema)
    assert (first["id"], first["item"], first["at"], first["when"]) == (
        1, "tea", {"city": "Praha"}, WHEN,
    )  # fmt: skip
    assert sorted(bad) == [2, 3, 4]
    assert "begins with 0" in bad[2] or "too few" in bad[2]
    assert "id 9" in bad[4]


def test_columns_as_a_json_schema_and_back() -> None:
    schema = StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("item", StringType()),
            StructField("tags", ArrayType(StringType())),
            StructField("at", StructType([StructField("city", StringType())])),
            StructField("prices", MapType(StringType(), DoubleType())),
            StructField("when", TimestampType()),
            StructField("day", DateType()),
            StructField("raw", BinaryType()),
        ]
    )
    text = json.dumps(json_schema_of(schema, "orders"))
    JsonSchema(text).check_keywords()
    assert spark_schema_of_json(text) == schema
    # A column more is a schema that reads what was written before.
    more = StructType([*schema.fields, StructField("extra", StringType())])
    newer = JsonSchema(json.dumps(json_schema_of(more, "orders")))
    assert newer.problems_reading(JsonSchema(text)) == []


def test_messages_to_rows_and_back() -> None:
    schema = spark_schema_of_message(message_of(ORDER, [PLACE]))
    assert schema.simpleString() == (
        "struct<id:bigint,item:string,tags:array<string>,prices:map<string,double>,"
        "at:struct<city:string>,when:timestamp,state:string,big:decimal(20,0)>"
    )
    value = {
        "id": 1, "item": None, "tags": ["a", "b"], "prices": {"x": 1.5}, "at": {"city": "Praha"},
        "when": WHEN,
    }  # fmt: skip
    batch = pa.RecordBatch.from_pylist(
        [{"value": value}],
        schema=pa.schema(
            [
                (
                    "value",
                    pa.struct(
                        [
                            ("id", pa.int64()), ("item", pa.string()),
                            ("tags", pa.list_(pa.string())),
                            ("prices", pa.map_(pa.string(), pa.float64())),
                            ("at", pa.struct([("city", pa.string())])),
                            ("when", pa.timestamp("us", "UTC")),
                        ]
                    ),
                )
            ]
        ),
    )  # fmt: skip
    (written,) = ProtobufEncoding(ORDER, [PLACE], pack_header(7))([batch].__iter__())
    payload = written.column("value")[0].as_py()
    decoder = RegisteredDecoder("protobuf", schema, ORDER, (PLACE,), {7: ""}, never)
    columns, bad = decoder.decode([payload, payload[:-1], pack_header(7) + b"\x02\x04", None])
    assert sorted(bad) == [1, 2]
    (first, *_) = rows(columns, schema)
    expected = {**value, "state": "NEW", "big": 0, "prices": [("x", 1.5)]}
    assert first == expected


def test_a_newer_schema_with_more_fields_stops_the_reading() -> None:
    text = 'syntax = "proto3"; message M { int64 a = 1; }'
    newer = 'syntax = "proto3"; message M { int64 a = 1; N n = 2; message N { string s = 1; } }'
    schema = registered_columns("protobuf", text)
    versions: dict[int | str, RegisteredSchema] = {
        8: RegisteredSchema("s", 2, 8, newer, SchemaType.PROTOBUF),
        9: RegisteredSchema("s", 3, 9, text, SchemaType.PROTOBUF),
    }
    decoder = RegisteredDecoder(
        "protobuf", schema, text, (), {7: ""}, versions.__getitem__, "Start again"
    )
    _, bad = decoder.decode([pack_header(9) + b"\x00\x08\x01"])
    assert bad == {}
    with pytest.raises(NewFields, match=r"n \(struct<s:string>\).*Start again"):
        decoder.decode([pack_header(8) + b"\x00\x08\x01"])
    assert extra_columns(registered_columns("protobuf", newer), schema) == []


def test_fields_keep_their_numbers() -> None:
    b = StructField("b", StringType(), nullable=False)
    first = proto_of(StructType([StructField("a", LongType()), b]), "my-topic", {})
    assert numbers_of(first) == {"my_topic": {"a": 1, "b": 2}}
    second = proto_of(
        StructType(
            [
                StructField("c", StructType([StructField("x", LongType())])),
                b,
                StructField("t", TimestampType()),
                StructField("l", ArrayType(LongType())),
            ]
        ),
        "my-topic",
        numbers_of(first),
    )
    assert numbers_of(second)["my_topic"] == {"c": 3, "b": 2, "t": 4, "l": 5}
    assert ProtobufSchema(second).problems_reading(ProtobufSchema(first)) == []
    with pytest.raises(FormatError, match="cast the column"):
        proto_of(StructType([StructField("d", DecimalType(10, 2))]), "t", {})


def test_a_schema_may_be_named_in_a_header() -> None:
    text = 'syntax = "proto3"; message M { int64 a = 1; } message N { int64 b = 1; }'
    schema = registered_columns("protobuf", text)
    guid = "00000000-0000-0000-0000-000000000007"
    decoder = RegisteredDecoder("protobuf", schema, text, (), {7: ""}, never, "", {guid: 7})
    name = pack_guid(guid)
    # The index of the message is behind the name, wherever that is.
    columns, bad = decoder.decode(
        [b"\x08\x01", b"\x08\x02", pack_header(7) + b"\x00\x08\x03", b"\x08\x04", None],
        [name + b"\x00", name + b"\x02\x02", None, pack_header(7) + b"\x02\x00", name + b"\x00"],
    )
    assert list(bad) == [1]
    assert columns[0].to_pylist() == [1, None, 3, 4, None]
    _, bad = decoder.decode([b"\x08\x01"], [pack_guid(guid.replace("7", "8")) + b"\x00"])
    assert "no schema has the id 00000000-" in bad[0]


def test_the_last_header_of_a_row_that_names_a_schema_counts() -> None:
    headers = [
        [],
        [{"key": "other", "value": b"1"}, {"key": "__value_schema_id", "value": b"2"}],
        None,
        [{"key": "__value_schema_id", "value": b"3"}, {"key": "__value_schema_id", "value": b"4"}],
        [{"key": "__key_schema_id", "value": b"5"}],
        [{"key": "__value_schema_id", "value": None}],
    ]
    batch = pa.RecordBatch.from_pydict({"headers": pa.array(headers, ARROW_TYPES["headers"])})
    assert schema_names(batch) == [None, b"2", None, b"4", None, None]
    assert schema_names(batch.slice(3, 1)) == [b"4"]
    assert schema_names(batch.slice(0, 1)) == [None]
