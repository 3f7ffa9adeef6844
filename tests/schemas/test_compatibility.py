"""Compatibility: which schemas can read each other, by rule and by what fastavro really does."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.schemas import Mode, reading_problem


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


TREE = record(field("value", "int"), field("children", {"type": "array", "items": "R"}))
LONG_TREE = record(field("value", "long"), field("children", {"type": "array", "items": "R"}))
TEXT_TREE = record(field("value", "string"), field("children", {"type": "array", "items": "R"}))

READABLE = [
    ("int", "int"),
    ("long", "int"),
    ("double", "int"),
    ("float", "long"),
    ("double", "float"),
    ("bytes", "string"),
    ("string", "bytes"),
    (["null", "int"], "int"),
    (["null", "long"], "int"),
    (["int", "null"], ["null", "int"]),
    ("int", ["int"]),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ({"type": "map", "values": "double"}, {"type": "map", "values": "int"}),
    (enum("A", "B", "C"), enum("A", "B")),
    (enum("A", default="A"), enum("A", "B")),
    (fixed(4), fixed(4)),
    (record(field("a", "int")), record(field("a", "int"), field("b", "string"))),
    (record(field("a", "int"), field("b", "int", default=0)), record(field("a", "int"))),
    (record(field("n", "int", aliases=["a"])), record(field("a", "int"))),
    (record(name="New", aliases=["R"]), record()),
    (record(namespace="x"), record(namespace="y")),
    (LONG_TREE, TREE),
    (decimal(9, 2), decimal(9, 2)),
]
REFUSED = [
    ("int", "long", "long cannot be read as int"),
    ("float", "double", "double cannot be read as float"),
    ("int", "string", "string cannot be read as int"),
    ("int", ["null", "int"], "null cannot be read as int"),
    (["null", "string"], "int", "int is not in the union (null, string)"),
    ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, "array cannot be read"),
    (enum("A"), enum("A", "B"), "enum E has no symbol B and no default"),
    (fixed(4), fixed(5), "5 bytes (F) cannot be read as 4"),
    (fixed(4, "G"), fixed(4), "fixed F is not G"),
    (record(name="S"), record(), "record R is not S"),
    (record(field("a", "int")), record(), "field a: the reader requires it"),
    (record(field("a", "int")), record(field("a", "string")), "field a: string cannot be read"),
    (TREE, TEXT_TREE, "field value: string cannot be read as int"),
    (
        record(field("in", record(field("x", "int"), name="In"))),
        record(field("in", record(field("x", "string"), name="In"))),
        "field in.x: string cannot be read as int",
    ),
    (
        record(field("a", ["null", record(field("x", "int"), name="In")])),
        record(field("a", ["null", record(name="In")])),
        "field a.x: the reader requires it",
    ),
    (
        record(field("a", {"type": "array", "items": "int"})),
        record(field("a", {"type": "array", "items": "string"})),
        "field a[]: string",
    ),
    (decimal(9, 2), decimal(9, 3), "decimal(9, 3) cannot be read as decimal(9, 2)"),
]


def read_with_fastavro(reader: Any, writer: Any, index: int) -> None:
    """Write something with one schema and read it with the other."""
    parsed_writer, parsed_reader = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed_writer, generate_one(parsed_writer))
    out.seek(0)
    fastavro.schemaless_reader(out, parsed_writer, parsed_reader)


@pytest.mark.parametrize(("reader", "writer"), READABLE, ids=repr)
def test_a_reader_that_gets_on_with_its_writer(reader: Any, writer: Any) -> None:
    assert reading_problem(reader, writer) is None
    if writer not in (TREE, "bytes"):
        read_with_fastavro(reader, writer, 0)


@pytest.mark.parametrize(("reader", "writer", "reason"), REFUSED, ids=repr)
def test_a_reader_that_does_not(reader: Any, writer: Any, reason: str) -> None:
    problem = reading_problem(reader, writer)
    assert problem is not None
    assert problem.startswith(reason)


PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "string"])
DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 1.5,
    "string": "x",
}
ENUMS = st.lists(st.sampled_from("ABCD"), min_size=1, max_size=4, unique=True).flatmap(
    lambda symbols: st.sampled_from([enum(*symbols), enum(*symbols, default=symbols[0])])
)
UNIONS = st.lists(PRIMITIVES, min_size=1, max_size=3, unique=True)
FIXED = st.integers(1, 3).map(fixed)


def kinds(depth: int) -> st.SearchStrategy[Any]:
    if depth == 0:
        return PRIMITIVES | UNIONS
    inner = kinds(depth - 1)
    return (
        PRIMITIVES
        | UNIONS
        | inner.map(lambda items: {"type": "array", "items": items})
        | inner.map(lambda values: {"type": "map", "values": values})
    )


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    fields = []
    for name in draw(st.lists(st.sampled_from("abcd"), max_size=4, unique=True)):
        kind = draw(kinds(2))
        more = {}
        if isinstance(kind, str) and draw(st.booleans()):
            more["default"] = DEFAULTS[kind]
        fields.append(field(name, kind, **more))
    if draw(st.booleans()):
        fields.append(field("e", draw(ENUMS)))
    if draw(st.booleans()):
        fields.append(field("f", draw(FIXED)))
    return record(*fields)


@settings(max_examples=200)
@given(records(), records())
def test_what_is_called_readable_fastavro_reads(reader: Any, writer: Any) -> None:
    if reading_problem(reader, writer) is None:
        for index in range(5):
            read_with_fastavro(reader, writer, index)


@settings(max_examples=200)
@given(records())
def test_every_schema_reads_what_it_has_written_itself(schema: Any) -> None:
    assert reading_problem(schema, schema) is None
    for mode in Mode:
        assert mode.problem(schema, [(1, schema)]) is None


V1 = record(field("a", "int"))
V2 = record(field("a", "int"), field("b", "int", default=0))
V3 = record(field("a", "int"), field("b", "int"))


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (Mode.NONE, None),
        (Mode.BACKWARD, None),
        (Mode.BACKWARD_TRANSITIVE, "it cannot read data written with version 1: field b"),
        (Mode.FORWARD, None),
        (Mode.FORWARD_TRANSITIVE, None),
        (Mode.FULL, None),
        (Mode.FULL_TRANSITIVE, "it cannot read data written with version 1: field b"),
    ],
)
def test_a_mode_looks_at_the_versions_and_directions_it_names(mode: Mode, reason: str) -> None:
    found = mode.problem(V3, [(1, V1), (2, V2)])
    assert (found is None) == (reason is None)
    assert found is None or found.startswith(reason)


def test_forward_refuses_what_old_readers_cannot_read() -> None:
    assert Mode.BACKWARD.problem(V1, [(1, V3)]) is None
    assert (Mode.FORWARD.problem(V1, [(1, V3)]) or "").startswith(
        "version 1 cannot read data written with it: field b"
    )
