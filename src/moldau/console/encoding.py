"""Encoding: keys and values that people typed, as bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from moldau.client.avro import encode_avro
from moldau.client.errors import SerializationError
from moldau.console.call import Call
from moldau.console.errors import invalid
from moldau.schemas.header import pack_header
from moldau.schemas.registered import RegisteredSchema
from moldau.schemas.schema import InvalidSchema, SchemaType


def encoded(call: Call, content: Any, encoding: str, schema_id: int | None = None) -> bytes | None:
    """Return the bytes of a key or value; ApiError if it is not what the encoding says."""
    if content is None and encoding != "json":
        return None
    match encoding:
        case "null":
            return None
        case "json":
            # A text that is JSON is meant as that: pages send what people typed.
            return content.encode() if isinstance(content, str) else msgspec.json.encode(content)
        case "schema":
            if schema_id is None:
                raise invalid("the encoding schema needs a schema_id")
            return by_schema(call.registry.by_id(schema_id), content)
    if not isinstance(content, str):
        raise invalid(f"{encoding} is a string, not {type(content).__name__}")
    if encoding == "hex":
        try:
            return bytes.fromhex(content)
        except ValueError:
            raise invalid("the value is not hexadecimal; write two digits per byte") from None
    return content.encode()


def by_schema(schema: RegisteredSchema, content: Any) -> bytes:
    """Return a value as a producer with this schema writes it."""
    if isinstance(content, str) and content[:1] in "{[":
        try:
            content = msgspec.json.decode(content)
        except msgspec.DecodeError as problem:
            raise invalid(f"the value is not JSON: {problem}") from None
    prefix = pack_header(schema.id)
    if schema.type is SchemaType.AVRO:
        try:
            return encode_avro(schema.schema, content, "the topic", prefix)
        except SerializationError as problem:
            raise invalid(str(problem)) from None
    if schema.type is SchemaType.JSON:
        return prefix + msgspec.json.encode(content)
    return prefix + b"\0" + _protobuf(schema, content)


def _protobuf(schema: RegisteredSchema, content: Any) -> bytes:
    """Write the first message of a Protobuf schema."""
    from moldau.schemas.protobuf.schema import ProtobufSchema

    try:
        compiled = ProtobufSchema(schema.text, schema.dependencies)
    except InvalidSchema as problem:
        raise invalid(str(problem)) from None
    from google.protobuf import descriptor_pool, json_format, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in (*compiled.imports.values(), compiled.file):
        pool.AddSerializedFile(file.SerializeToString())
    if not compiled.full_name:
        raise invalid("the schema has no message")
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(compiled.full_name))
    if not isinstance(content, dict):
        raise invalid("the value does not match its schema: a message must be a JSON object")
    try:
        return bytes(json_format.ParseDict(content, kind()).SerializeToString())
    except json_format.ParseError as problem:
        raise invalid(f"the value does not match its schema: {problem}") from None
