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


# The forms of each type's texts, beside the one in which it is kept.
FORMS = {
    SchemaType.AVRO: ("resolved",),
    SchemaType.PROTOBUF: ("serialized", "ignore_extensions"),
    SchemaType.JSON: (),
}


def formatted(schema: Schema, dependencies: Sequence[Dependency], form: str) -> str:
    """Return the text of a schema in one of the forms that its type has.

    Avro `resolved` has the types of others written out where they are first named. Protobuf
    `serialized` is a file descriptor in base64, `ignore_extensions` a file without extensions.
    """
    if form == "resolved":
        from moldau.schemas.avro.schema import AvroSchema, self_contained

        return AvroSchema(self_contained(schema.schema, dependencies)).canonical()
    from moldau.schemas.protobuf.schema import ProtobufSchema

    file = ProtobufSchema(schema.schema, dependencies)
    return file.serialized() if form == "serialized" else file.without_extensions()


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
