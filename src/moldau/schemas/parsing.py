"""Parsing: from a schema as a value to one that can be compared, whatever its type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moldau.schemas.schema import Dependency, InvalidSchema, Schema, SchemaType


def parse(schema: Schema, dependencies: Sequence[Dependency] = (), *, is_new: bool = False) -> Any:
    """Return the parsed schema; InvalidSchema says what is wrong with it.

    A new one is checked in points that old ones may lack.
    """
    try:
        return _parse(schema, dependencies, is_new)
    except RecursionError:
        raise InvalidSchema("it is nested too deeply") from None


def _parse(schema: Schema, dependencies: Sequence[Dependency], is_new: bool) -> Any:
    match schema.schema_type:
        case SchemaType.AVRO:
            from moldau.schemas.avro.schema import AvroSchema

            avro = AvroSchema(schema.schema, dependencies)
            if is_new:
                avro.check_defaults()
            return avro
        case SchemaType.JSON:
            from moldau.schemas.json_schema.schema import JsonSchema

            found = JsonSchema(schema.schema, dependencies)
            if is_new:
                found.check_keywords()
            return found
        case SchemaType.PROTOBUF:
            from moldau.schemas.protobuf.schema import ProtobufSchema

            return ProtobufSchema(schema.schema, dependencies)
