"""Values at the door that libraries are too patient with."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("numba", reason="the check is compiled by numba, which is not installed")

from moldau.schemas.door import values
from moldau.schemas.header import pack_header
from moldau.schemas.schema import Schema, SchemaType
from tests.schemas.test_door import ID, checked


@pytest.mark.parametrize("constant", [b"NaN", b"-Infinity", b'{"a": [Infinity]}'])
def test_what_only_python_takes_for_json_is_none(constant: bytes) -> None:
    found = checked([pack_header(ID) + constant], Schema("{}", SchemaType.JSON))
    assert [index for index, _ in found.problems] == [0]
    assert "not JSON" in found.problems[0][1]


# Hypothesis is called by the garbage collector, where what is raised is lost.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_value_that_takes_too_long_is_named_and_the_others_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each level has two ways down, and no way ends well."""
    monkeypatch.setattr(values, "_MOST_CPU_S", 0.1)
    down = {"type": "array", "items": {"$ref": "#"}}
    schema = {"anyOf": [down, {**down, "title": "again"}]}
    endless = b"[" * 60 + b"1" + b"]" * 60
    mixed = (b"[[]]", endless, b"[1]", b"[]")
    schema_of = Schema(json.dumps(schema), SchemaType.JSON)
    found = checked([pack_header(ID) + each for each in mixed], schema_of)
    assert [index for index, _ in found.problems] == [1, 2]
    assert "takes more than" in found.problems[0][1]
    # A batch of nothing else ends in time, too, and the next one has all the time again.
    monkeypatch.setattr(values, "_MOST_OF_BATCH_S", 0.25)
    found = checked([pack_header(ID) + endless for _ in range(1_000)], schema_of)
    assert len(found.problems) == 1_000
    assert "the values before it took" in found.problems[-1][1]
    assert not checked([pack_header(ID) + b"[[]]"], schema_of).problems


def test_a_message_without_a_field_that_it_must_have_is_none() -> None:
    text = (
        'syntax = "proto2"; message A { required int32 a = 1; repeated In in = 2; '
        "message In { required string s = 1; } }"
    )
    schema = Schema(text, SchemaType.PROTOBUF)
    payloads = (b"\x00\x08\x01", b"\x00", b"\x00\x08\x01\x12\x00", b"\x00\x08\x01\x12\x03\x0a\x01x")
    found = checked([pack_header(ID) + each for each in payloads], schema)
    assert [index for index, _ in found.problems] == [1, 2]
    assert found.problems[1][1].endswith("it lacks in[0].s")
