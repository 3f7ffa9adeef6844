"""JSON Schemas that read each other: by rule, and by what a validator says of real values."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.schemas.json_schema.schema import JsonSchema
from moldau.schemas.schema import Dependency, InvalidSchema

NUMBER, TEXT = {"type": "number"}, {"type": "string"}
A_INT = {"properties": {"a": {"type": "integer"}}}
CLOSED = {"additionalProperties": False}


def kinds(new: Any, old: Any) -> list[str]:
    """The kinds of problems that the new schema has with what the old one allows."""
    found = JsonSchema(json.dumps(new)).problems_reading(JsonSchema(json.dumps(old)))
    return [problem.kind for problem in found]


COMPATIBLE = [
    ({}, TEXT),
    (NUMBER, {"type": "integer"}),
    ({"type": ["string", "null"]}, TEXT),
    ({"type": "object", **A_INT}, {"type": "object", **A_INT, **CLOSED}),
    ({"type": "object"}, {"type": "object", **A_INT}),
    (
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}, **CLOSED},
        {"type": "object", "properties": {"a": TEXT}, **CLOSED},
    ),
    (
        {"type": "object", "properties": {"a": {**TEXT, "default": "x"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": TEXT}},
    ),
    ({"enum": ["a", "b", "c"]}, {"enum": ["a", "b"]}),
    ({"enum": ["a", "b"]}, {"const": "a"}),
    ({"anyOf": [TEXT, NUMBER]}, TEXT),
    ({"oneOf": [TEXT, NUMBER, {"type": "null"}]}, {"oneOf": [TEXT, NUMBER]}),
    ({"maximum": 10}, {"maximum": 9}),
    ({"exclusiveMaximum": 10}, {"maximum": 9}),
    ({"multipleOf": 0.1}, {"multipleOf": 0.5}),
    ({"type": "array", "items": NUMBER}, {"type": "array", "items": {"type": "integer"}}),
    ({"title": "x", "description": "y"}, {"title": "z"}),
    (
        {"$ref": "#/definitions/a", "definitions": {"a": NUMBER}},
        {"type": "integer"},
    ),
    (
        {"type": "object", "properties": {"next": {"$ref": "#"}}, **CLOSED},
        {"type": "object", "properties": {"next": {"$ref": "#"}}, **CLOSED},
    ),
    ({"allOf": [NUMBER, {"minimum": 1}]}, {"type": "integer", "minimum": 2}),
    ({"type": "integer", "minimum": 1}, {"allOf": [{"type": "integer"}, {"minimum": 2}]}),
    ({"not": TEXT}, {"not": {"type": ["string", "null"]}}),
    ({"not": TEXT}, NUMBER),
]
INCOMPATIBLE = [
    (TEXT, {}, "TYPE_NARROWED"),
    (TEXT, NUMBER, "TYPE_CHANGED"),
    ({"type": "integer"}, NUMBER, "TYPE_NARROWED"),
    ({"type": "object", **A_INT}, {"type": "object"}, "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (
        {"type": "object", **CLOSED},
        {"type": "object", **A_INT, **CLOSED},
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    (
        {"type": "object", **CLOSED, **A_INT},
        {"type": "object", **A_INT},
        "ADDITIONAL_PROPERTIES_REMOVED",
    ),
    (
        {"type": "object", **A_INT, "required": ["a"]},
        {"type": "object", **A_INT},
        "REQUIRED_ATTRIBUTE_ADDED",
    ),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_NARROWED"),
    ({"maximum": 9}, {"maximum": 10}, "MAXIMUM_DECREASED"),
    ({"exclusiveMaximum": 10}, {"maximum": 10}, "MAXIMUM_DECREASED"),
    ({**TEXT, "maxLength": 3}, TEXT, "MAX_LENGTH_ADDED"),
    ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, "PATTERN_CHANGED"),
    ({"oneOf": [NUMBER, {"type": "integer"}]}, {"type": "integer"}, "SUM_TYPE_NARROWED"),
    ({"anyOf": [TEXT]}, {"anyOf": [TEXT, NUMBER]}, "SUM_TYPE_NARROWED"),
    ({"not": TEXT}, {}, "NOT_TYPE_EXTENDED"),
    ({"multipleOf": 0.5}, {"multipleOf": 0.2}, "MULTIPLE_OF_CHANGED"),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, "UNIQUE_ITEMS_ADDED"),
]


@pytest.mark.parametrize(("new", "old"), COMPATIBLE, ids=repr)
def test_a_schema_that_takes_all_that_the_other_took(new: Any, old: Any) -> None:
    assert kinds(new, old) == []


@pytest.mark.parametrize(("new", "old", "kind"), INCOMPATIBLE, ids=repr)
def test_a_schema_that_does_not(new: Any, old: Any, kind: str) -> None:
    assert kind in kinds(new, old)


LEAVES = st.sampled_from(
    [
        {}, True, {"type": "string"}, {"type": "string", "maxLength": 2},
        {"type": "string", "minLength": 1}, {"type": "string", "pattern": "^a"},
        {"type": "integer"}, {"type": "number"}, {"type": "integer", "minimum": 1},
        {"type": "number", "maximum": 2}, {"type": "number", "exclusiveMinimum": 1},
        {"type": "integer", "multipleOf": 2}, {"type": "null"}, {"type": "boolean"},
        {"type": ["string", "null"]}, {"type": ["integer", "string"]}, {"enum": ["a", 1]},
        {"enum": ["a", "b", None]}, {"const": "a"}, {"type": "string", "enum": ["a", "b"]},
        {"minimum": 2}, {"maxLength": 1}, {"$ref": "#/definitions/d"},
        {"$ref": "#/definitions/d", "maxLength": 1},
    ]
)  # fmt: skip
CHANCE = st.booleans()
NAMES = st.sampled_from(["a", "b", "ab", "c"])


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Any:
    found: dict[str, Any] = {}
    if draw(st.integers(0, 3)):
        found["type"] = "object"
    found["properties"] = draw(st.dictionaries(NAMES, inner, max_size=3))
    if draw(st.booleans()):
        found["required"] = draw(st.lists(NAMES, max_size=2, unique=True))
    match draw(st.integers(0, 4)):
        case 0 | 1:
            found["additionalProperties"] = False
        case 2:
            found["additionalProperties"] = draw(inner)
    if draw(st.integers(0, 4)) == 0:
        patterns = st.sampled_from(["^a", "b$"])
        found["patternProperties"] = draw(st.dictionaries(patterns, inner, max_size=2))
    if draw(st.integers(0, 5)) == 0:
        found["maxProperties"] = draw(st.integers(0, 2))
    return found


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        objects(inner),
        objects(inner),
        inner.map(lambda items: {"type": "array", "items": items}),
        several.map(lambda items: {"type": "array", "items": items, "additionalItems": False}),
        several.map(lambda branches: {"anyOf": branches}),
        several.map(lambda branches: {"oneOf": branches}),
        several.map(lambda branches: {"allOf": branches}),
        inner.map(lambda excluded: {"not": excluded}),
        st.tuples(inner, several).map(lambda both: {**_plain(both[0]), "anyOf": both[1]}),
    )


def _plain(schema: Any) -> Any:
    return schema if isinstance(schema, dict) and "$ref" not in schema else {}


SCHEMAS = st.recursive(LEAVES, combined, max_leaves=5)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, 2.5, "", "a", "b", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two schemas, of which one is often the other with a change somewhere."""
    old = draw(SCHEMAS)
    if draw(CHANCE):
        new = draw(SCHEMAS)
    else:
        new = copy.deepcopy(old)
        if isinstance(new, dict):
            keys: list[str] = [key for key in new if key != "$ref"]
            if draw(CHANCE) and keys:
                del new[draw(st.sampled_from(keys))]
            if isinstance(new.get("properties"), dict):
                new["properties"][draw(NAMES)] = draw(LEAVES)
            for union in ("anyOf", "oneOf", "allOf"):
                if union in new:
                    new[union] = [*new[union], draw(LEAVES)]
    return _whole(new, draw(LEAVES)), _whole(old, draw(LEAVES))


def _whole(schema: Any, definition: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    definition = {} if definition is True or "$ref" in definition else definition
    # What stands beside a $ref counts in the drafts since 2019 only.
    draft = "https://json-schema.org/draft/2019-09/schema"
    return {**schema, "$schema": draft, "definitions": {"d": definition}}


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs(), st.lists(VALUES, min_size=8, max_size=8))
def test_what_is_let_pass_reads_real_values(pair: tuple[Any, Any], values: list[Any]) -> None:
    new, old = pair
    if kinds(new, old):
        return
    reader, writer = (jsonschema.Draft201909Validator(each) for each in (new, old))
    for value in values:
        if writer.is_valid(value):
            assert reader.is_valid(value), (new, old, value)


@given(SCHEMAS.map(lambda schema: _whole(schema, {"type": "string"})))
def test_a_schema_takes_what_it_took_itself(schema: Any) -> None:
    text = json.dumps(schema)
    if "oneOf" not in text and "not" not in text and "$ref" not in text:
        assert kinds(schema, schema) == []


def test_schemas_of_other_subjects_are_found_by_name() -> None:
    place = Dependency("place.json", json.dumps({"type": "object", **A_INT}))
    text = json.dumps({"properties": {"at": {"$ref": "place.json#/properties/a"}}})
    found = JsonSchema(text, [place])
    assert found.documents.target(found.documents.root["properties"]["at"]) == {"type": "integer"}
    narrower = Dependency("place.json", json.dumps({"properties": {"a": {"const": 1}}}))
    assert JsonSchema(text, [narrower]).problems_reading(found)
    assert not found.problems_reading(JsonSchema(text, [narrower]))
    with pytest.raises(InvalidSchema, match=r"place\.json"):
        JsonSchema(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "not JSON"),
        ('"string"', "object or a boolean"),
        ('{"$ref": "#/definitions/a"}', "there is no"),
        ('{"$ref": "#"}', "circular"),
        (
            '{"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, '
            '"b": {"$ref": "#/definitions/a"}}}',
            "circular",
        ),
        ("[" * 200 + "]" * 200, "deep"),
        ('{"$ref": "#nowhere"}', "anchor"),
    ],
)
def test_a_bad_schema_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        JsonSchema(text)


def test_a_keyword_of_the_wrong_type_is_named() -> None:
    with pytest.raises(InvalidSchema, match="properties"):
        JsonSchema('{"properties": 3}').check_keywords()


def test_a_pattern_that_would_explode_is_matched_in_no_time() -> None:
    pattern = "^(a+)+$"
    name = "a" * 40 + "!"
    old = {"type": "object", "patternProperties": {pattern: TEXT}, "properties": {name: NUMBER}}
    assert kinds(old, old) == []
    assert kinds({**old, "properties": {}, **CLOSED}, old)
