"""The check of batches against schemas: what passes can be read, and what cannot does not."""

from __future__ import annotations

import io
import json
import random
import uuid
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="the check is compiled by numba, which is not installed")

from moldau.client.avro import decode_avro
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.schemas.door import checking
from moldau.schemas.door.checking import Checker
from moldau.schemas.door.messages import CheckBatch, Checked, KnownSchema, Table
from moldau.schemas.header import (
    KEY_HEADER,
    VALUE_HEADER,
    name_in,
    pack_guid,
    pack_header,
    read_name,
)
from moldau.schemas.schema import Dependency, Reference, Schema, SchemaType
from tests.schemas.random_avro import RandomSchemas

ID = 7
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "value", "type": ["null", "int", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "weights", "type": {"type": "map", "values": "double"}},
        {"name": "leaf", "type": "boolean"},
    ],
}


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def checked(
    values: list[bytes | None],
    schema: Schema,
    dependencies: list[Dependency] | None = None,
    codec: Codec = Codec.NONE,
) -> Checked:
    batch = build_batch([Record(i, 1, b"k", value) for i, value in enumerate(values)], codec)
    table = Table("t-value", [KnownSchema(ID, schema, dependencies or [])])
    return Checker().check(CheckBatch(bytes(batch), None, "t-value", [table]))


def verdicts(payloads: list[bytes], schema: Any) -> list[bool]:
    """Whether each payload passes."""
    found = checked([pack_header(ID) + each for each in payloads], Schema(json.dumps(schema)))
    wrong = {index for index, _ in found.problems}
    return [index not in wrong for index in range(len(payloads))]


@settings(max_examples=80)
@given(st.integers(0, 10_000))
def test_values_of_any_schema_pass(seed: int) -> None:
    schema = RandomSchemas(seed).schema()
    try:
        parsed = fastavro.parse_schema(schema)
        random.seed(seed)
        payloads = [encoded(schema, generate_one(parsed)) for _ in range(5)]
    except (RecursionError, ValueError, fastavro.schema.SchemaParseException):
        # A type that contains itself in every value has none.
        return
    assert all(verdicts(payloads, schema)), schema


@settings(max_examples=150)
@given(st.integers(0, 200), st.lists(st.binary(max_size=40), min_size=1, max_size=10))
def test_what_passes_can_be_read(seed: int, payloads: list[bytes]) -> None:
    schema = RandomSchemas(seed).schema()
    try:
        parsed = fastavro.parse_schema(schema)
    except fastavro.schema.SchemaParseException:
        return
    for payload, passes in zip(payloads, verdicts(payloads, schema), strict=True):
        if passes:
            decode_avro(payload, 0, parsed, parsed)


@settings(max_examples=150)
@given(st.data())
def test_a_value_that_was_changed_passes_only_if_it_can_be_read(data: st.DataObject) -> None:
    def tree(depth: int) -> dict[str, Any]:
        children = data.draw(st.integers(0, 2)) if depth else 0
        return {
            "value": data.draw(st.sampled_from([None, 1, "ü"])),
            "kind": "B",
            "hash": b"xy",
            "children": [tree(depth - 1) for _ in range(children)],
            "weights": {"a": 1.0},
            "leaf": True,
        }

    payload = bytearray(encoded(TREE, tree(2)))
    assert verdicts([bytes(payload)], TREE) == [True]
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    cut = bytes(payload[: data.draw(st.integers(1, len(payload)))])
    parsed = fastavro.parse_schema(TREE)
    for each, passes in zip(
        [bytes(payload), cut], verdicts([bytes(payload), cut], TREE), strict=True
    ):
        if passes:
            decode_avro(each, 0, parsed, parsed)


def test_a_number_is_not_written_longer_than_java_reads() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    for schema, rest in (("int", b""), (enum, b""), (["null", "boolean"], b"\x01")):
        ones = (b"\x02", b"\x82\x80\x80\x80\x00", b"\x82\x80\x80\x80\x80\x00")
        assert verdicts([one + rest for one in ones], schema) == [True, True, False], schema
    assert verdicts([b"\x82" + b"\x80" * 8 + b"\x00"], "long") == [True]


NULLS = {"type": "array", "items": "null"}


def test_lies_cost_nothing() -> None:
    assert verdicts([b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"], NULLS) == [True]
    # An array of 2^62 numbers, a string that is longer than all there is, one of 2^63 bytes.
    assert verdicts(
        [
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x01\x00",
            b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ],
        {"type": "array", "items": "long"},
    ) == [False, False, False]
    deep: Any = encoded(
        {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]},
        {"n": None},
    )
    endless = b"\x02" * 5_000 + deep
    linked = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
    assert verdicts([endless, b"\x02" * 50 + deep], linked) == [False, True]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_each_bad_record_is_named_with_its_reason(codec: Codec) -> None:
    fine = pack_header(ID) + encoded("string", "tea")
    found = checked(
        [fine, None, b"", b"\x00\x00", b"\x02" + fine[1:], pack_header(9) + b"x",
         fine[:-1], fine + b"x", pack_header(ID) + b"\x02\xff"],
        Schema('"string"'), codec=codec,
    )  # fmt: skip
    assert [index for index, _ in found.problems] == [2, 3, 4, 5, 6, 7, 8]
    assert found.unknown == [9]
    reasons = [reason for _, reason in found.problems]
    assert "too short" in reasons[0]
    assert "does not begin with a zero" in reasons[2]
    assert "schema 9 is not registered under t-value" in reasons[3]
    assert "not a value of schema 7" in reasons[4]
    assert "left over" in reasons[5]


def test_json_values() -> None:
    schema = Schema(
        json.dumps(
            {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "at": {"$ref": "place.json"},
                               "code": {"type": "string", "pattern": "^(a+)+$"}},
                "required": ["id"],
            }
        ),
        SchemaType.JSON,
        (Reference("place.json", "place", 1),),
    )  # fmt: skip
    place = Dependency("place.json", '{"type": "object", "required": ["city"]}')
    payloads = [
        b'{"id": 1}', b'{"id": "x"}', b"{", b'{"id": 1, "at": {}}', b'{"id": 1, "at": {"city": 1}}',
        b'{"id": 1, "code": "' + b"a" * 60 + b'!"}', b"[" * 5_000,
    ]  # fmt: skip
    found = checked([pack_header(ID) + each for each in payloads], schema, [place])
    assert [index for index, _ in found.problems] == [1, 2, 3, 5, 6]


_A: dict[str, Any] = {"patternProperties": {"^(a+)+$": {}}}


@pytest.mark.parametrize(
    ("schema", "is_fine"),
    [
        ({"properties": {"x": {"pattern": "^(a+)+$"}}}, False),
        ({"additionalProperties": _A}, True),
        ({"additionalProperties": {**_A, "additionalProperties": False}}, False),
        ({"additionalProperties": {**_A, "unevaluatedProperties": False},
          "$schema": "https://json-schema.org/draft/2020-12/schema"}, False),
    ],
)  # fmt: skip
def test_patterns_never_explode(schema: Any, is_fine: bool) -> None:
    """With Python's own `re`, each would take longer than the test may."""
    worst = "a" * 60 + "!"
    found = checked(
        [
            pack_header(ID) + json.dumps(value).encode()
            for value in ({"x": worst, "y": {worst: 1}}, {"x": {"a": 1}})
        ],
        Schema(json.dumps(schema), SchemaType.JSON),
    )
    assert [index for index, _ in found.problems] == ([] if is_fine else [0])


def test_a_pattern_that_cannot_be_bounded_is_a_reason() -> None:
    schema = {"properties": {"x": {"type": "string", "pattern": "^(?=.*[0-9])(a+)+$"}}}
    found = checked(
        [pack_header(ID) + each for each in (b'{"x": "aaa1"}', b'{"y": 1}')],
        Schema(json.dumps(schema), SchemaType.JSON),
    )
    assert [index for index, _ in found.problems] == [0]
    assert "cannot be matched here" in found.problems[0][1]


def test_protobuf_values() -> None:
    text = (
        'syntax = "proto3"; import "p.proto"; message A { int32 a = 1; '
        "message In { string s = 1; } } message B { P p = 1; }"
    )
    schema = Schema(text, SchemaType.PROTOBUF, (Reference("p.proto", "p", 1),))
    other = Dependency("p.proto", 'syntax = "proto3"; message P { string s = 1; }')
    payloads = [
        b"\x00\x08\x01", b"\x02\x00\x08\x01", b"\x02\x02\x0a\x03\x0a\x01x",
        b"\x04\x00\x00\x0a\x01x", b"\x02\x04\x08\x01", b"\x00\x08",
        b"\x04\x00\x00\x0a\x01\xff", b"", b"\x02",
    ]  # fmt: skip
    found = checked([pack_header(ID) + each for each in payloads], schema, [other])
    assert [index for index, _ in found.problems] == [4, 5, 6, 7, 8]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_records_are_refused(data: bytes) -> None:
    batch = bytearray(build_batch([Record(0, 1, None, b"x")]))
    batch[61:] = data
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    table = Table("t-value", [KnownSchema(ID, Schema('"string"'))])
    Checker().check(CheckBatch(bytes(batch), None, "t-value", [table]))


GUID, OTHER = str(uuid.UUID(int=1 << 127)), str(uuid.UUID(int=9))


def named(
    records: list[tuple[bytes | None, list[tuple[str, bytes | None]]]], schema: Schema
) -> Checked:
    """The answer for values whose schemas are named in headers."""
    batch = build_batch(
        [Record(i, 1, b"k", value, tuple(headers)) for i, (value, headers) in enumerate(records)]
    )
    table = Table("t-value", [KnownSchema(3, Schema('"long"')), KnownSchema(ID, schema, [], GUID)])
    return Checker().check(CheckBatch(bytes(batch), None, "t-value", [table]))


def test_a_schema_may_be_named_in_a_header() -> None:
    bare = encoded("string", "tea")
    name, wrong = (VALUE_HEADER, pack_guid(GUID)), (VALUE_HEADER, pack_guid(OTHER))
    found = named(
        [
            (bare, [name]),
            (bare, [("a", b"1"), ("b", None), name]),
            # The last one counts, as for Java's clients.
            (bare, [wrong, name]),
            (bare, [(VALUE_HEADER, pack_header(ID))]),
            (pack_guid(GUID) + bare, []),
            (pack_header(ID) + bare, [(KEY_HEADER, pack_guid(OTHER)), (VALUE_HEADER, None)]),
            (None, [wrong]),
            # From here on they are bad.
            (bare, [name, wrong]),
            (bare, []),
            (pack_header(ID) + bare, [name]),
            (bare, [(VALUE_HEADER, b"")]),
            (bare, [(VALUE_HEADER, pack_guid(GUID)[:-1])]),
            (bare, [(VALUE_HEADER, pack_guid(GUID) + b"\x00")]),
            (pack_guid(OTHER) + bare, []),
        ],
        Schema('"string"'),
    )
    reasons = dict(found.problems)
    assert list(reasons) == [7, 8, 9, 10, 11, 12, 13]
    assert found.unknown == [OTHER]
    assert f"schema {OTHER} is not registered under t-value" in reasons[7]
    assert f"schema {OTHER} is not registered" in reasons[13]
    assert "left over" in reasons[12]
    assert "too short" in reasons[11]


def test_the_index_of_a_message_is_behind_the_name_of_its_schema() -> None:
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { string s = 1; }'
    found = named(
        [
            (b"\x08\x01", [(VALUE_HEADER, pack_guid(GUID) + b"\x00")]),
            (b"\x0a\x01x", [(VALUE_HEADER, pack_guid(GUID) + b"\x02\x02")]),
            (b"\x0a\x01\xff", [(VALUE_HEADER, pack_guid(GUID) + b"\x02\x02")]),
            (b"\x08\x01", [(VALUE_HEADER, pack_guid(GUID))]),
        ],
        Schema(text, SchemaType.PROTOBUF),
    )
    assert [index for index, _ in found.problems] == [2, 3]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([VALUE_HEADER, KEY_HEADER, "", "x" * 17]),
            st.none() | st.binary(max_size=20) | st.just(pack_guid(GUID)),
        ),
        max_size=4,
    ),
    st.binary(max_size=8) | st.just(encoded("string", "tea")),
)
def test_headers_name_schemas_as_clients_read_them(
    headers: list[tuple[str, bytes | None]], payload: bytes
) -> None:
    found = named([(payload, headers)], Schema('"string"'))
    try:
        schema, start, path = read_name(payload, name_in(headers, VALUE_HEADER))
        writer = {3: "long", ID: "string", GUID: "string"}[schema]
        value = decode_avro(payload, start, writer, writer)
    except (KeyError, ValueError):
        assert found.problems
        return
    # Numbers may be written longer than they need be.
    if not path and encoded(writer, value) == payload[start:]:
        assert not found.problems


@given(st.binary(max_size=30))
def test_bytes_that_are_no_headers_are_refused(data: bytes) -> None:
    record = b"\x00\x00\x00\x01\x02x" + data
    batch = bytearray(build_batch([Record(0, 1, None, b"x")]))
    batch[61:] = bytes([2 * len(record)]) + record
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    table = Table("t-value", [KnownSchema(ID, Schema('"string"'), [], GUID)])
    found = Checker().check(CheckBatch(bytes(batch), None, "t-value", [table]))
    # The value names no schema either.
    assert found.problem is not None or found.problems


def test_what_a_library_stumbles_over_is_refused_and_the_process_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stumble(*_: Any) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(checking, "decompress", stumble)
        found = checked([pack_header(ID) + b"\x02"], Schema('"int"'))
        assert found.problem == "cannot parse the batch: MemoryError: no room"
    with monkeypatch.context() as patch:
        patch.setattr(checking, "parse", stumble)
        found = checked([pack_header(ID) + b"\x02"], Schema('"int"'))
        assert found.problems == [(0, f"the value: schema {ID} cannot be used: no room")]
