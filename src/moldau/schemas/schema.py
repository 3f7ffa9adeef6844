"""Schemas as values: a text, its type, and the schemas of other subjects that it refers to."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

# Deeper ones are refused: no schema of people is, and code that follows them would not end well.
MAX_DEPTH = 100


class SchemaType(StrEnum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one uses, under the name that the other one has for it."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One schema, as clients send it and as the registry keeps it."""

    schema: str
    schema_type: SchemaType = SchemaType.AVRO
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None


def without_empty(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return metadata, or rules, without what says nothing: clients that got `{"tags": {...}}` may
    send it back with `"sensitive": []` beside it, and it is the same. InvalidSchema if it is nested
    too deeply."""
    found = _without_empty(part, 1)
    return found if isinstance(found, dict) else None


def _without_empty(part: Any, depth: int) -> Any:
    """Return a value without null and empty parts in it; None where nothing is left."""
    if depth > MAX_DEPTH:
        raise InvalidSchema(f"its metadata or rules are nested more than {MAX_DEPTH} levels deep")
    if isinstance(part, dict):
        inner = [(name, _without_empty(value, depth + 1)) for name, value in part.items()]
        return {name: value for name, value in inner if value is not None} or None
    if isinstance(part, list):
        values = [_without_empty(each, depth + 1) for each in part]
        return [value for value in values if value is not None] or None
    return part


class Dependency(msgspec.Struct, frozen=True):
    """A referenced schema with its text, behind all those that it refers to itself."""

    name: str
    schema: str


class InvalidSchema(ValueError):
    """A text that is no schema of its type."""


def check_depth(text: str) -> None:
    """Refuse JSON that is nested too deeply, before any parser goes down into it."""
    depth = 0
    in_string = False
    previous = ""
    for character in text:
        if in_string:
            if previous == "\\":
                character = ""
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidSchema(f"it is nested more than {MAX_DEPTH} levels deep")
        elif character in "}]":
            depth -= 1
        previous = character
