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
