"""Registered values: bytes that name a schema of the registry, read by it.

One reader per schema, kept. Protobuf needs the compiler of the extra `protobuf`; without it such a
value is shown as it is, with a word about why.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from moldau.client.avro import decode_avro
from moldau.schemas.client import RegistryClient
from moldau.schemas.errors import SchemaError
from moldau.schemas.header import GUID_SIZE, HEADER_SIZE, SchemaName, read_name
from moldau.schemas.registered import RegisteredSchema
from moldau.schemas.schema import InvalidSchema, SchemaType

ENCODINGS = {
    SchemaType.AVRO: "avro",
    SchemaType.JSON: "json-schema",
    SchemaType.PROTOBUF: "protobuf",
}
# A registry that lacks a schema, or does not answer, is not asked for the same one so soon again.
_FORGET_AFTER_S = 30.0
_MOST_READERS = 2000

Reader = Callable[[bytes, SchemaName], Any]


class Unreadable(Exception):
    """Bytes that name a schema, and cannot be read by it."""


class Decoded(NamedTuple):
    """A value as JSON knows it, how it was encoded, and by which schema."""

    value: Any
    encoding: str
    schema_id: int


class RegisteredValues:
    """Reads values by the schemas of one registry. Any thread."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._readers: dict[int | str, tuple[Reader, RegisteredSchema]] = {}
        self._missing: dict[int | str, tuple[float, str]] = {}

    def read(self, data: bytes, header: bytes | None) -> Decoded | None:
        """Return the value; None if the bytes name no schema."""
        if header is None and not (
            (data[:1] == b"\0" and len(data) >= HEADER_SIZE)
            or (data[:1] == b"\x01" and len(data) >= GUID_SIZE)
        ):
            return None
        try:
            name = read_name(data, header)
        except ValueError:
            return None
        reader, schema = self._reader(name.schema)
        try:
            value = as_plain(reader(data, name))
        except Exception as problem:
            raise Unreadable(
                f"not {schema.type} of schema {schema.id}: {str(problem) or type(problem).__name__}"
            ) from None
        return Decoded(value, ENCODINGS[schema.type], schema.id)

    def _reader(self, name: int | str) -> tuple[Reader, RegisteredSchema]:
        found = self._readers.get(name)
        if found is not None:
            return found
        until, why = self._missing.get(name, (0.0, ""))
        if time.monotonic() < until:
            raise Unreadable(why)
        try:
            schema = (
                self._registry.by_id(name)
                if isinstance(name, int)
                else self._registry.by_guid(name)
            )
            found = reader_of(schema), schema
        except (SchemaError, InvalidSchema, ValueError) as problem:
            why = f"schema {name}: {problem}"
            with self._lock:
                self._missing[name] = time.monotonic() + _FORGET_AFTER_S, why
            raise Unreadable(why) from None
        with self._lock:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            self._readers[name] = found
        return found


def reader_of(schema: RegisteredSchema) -> Reader:
    """Return what reads the values of a schema."""
    if schema.type is SchemaType.AVRO:
        parsed = schema.schema
        return lambda data, name: decode_avro(data, name.start, parsed, parsed)
    if schema.type is SchemaType.JSON:
        return lambda data, name: msgspec.json.decode(memoryview(data)[name.start :])
    return _protobuf_reader(schema)


def _protobuf_reader(schema: RegisteredSchema) -> Reader:
    from moldau.schemas.protobuf.schema import ProtobufSchema

    compiled = ProtobufSchema(schema.text, schema.dependencies)
    from google.protobuf import descriptor_pool, json_format, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in compiled.imports.values():
        pool.AddSerializedFile(file.SerializeToString())
    pool.AddSerializedFile(compiled.file.SerializeToString())
    described = pool.FindFileByName(compiled.file.name)

    def read(data: bytes, name: SchemaName) -> Any:
        path, start = read_path(name.path, 0) if name.path else read_path(data, name.start)
        names = [each.name for each in compiled.file.message_type]
        message = described.message_types_by_name[names[path[0]]]
        for index in path[1:]:
            message = message.nested_types[index]
        body = data[start if not name.path else name.start :]
        parsed = message_factory.GetMessageClass(message).FromString(body)
        # A field that is zero takes no bytes, and is there all the same.
        return json_format.MessageToDict(
            parsed, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )

    return read


def read_path(data: bytes, at: int) -> tuple[list[int], int]:
    """Return which message of a Protobuf file a payload is, and where that is behind it."""
    from moldau.records.record import read_varint

    count, at = read_varint(data, at)
    if count == 0:
        return [0], at
    if not 0 < count <= 64:
        raise ValueError(f"{count} is not a valid nesting depth")
    path = []
    for _ in range(count):
        index, at = read_varint(data, at)
        path.append(index)
    return path, at


def as_plain(value: Any) -> Any:
    """Return a decoded value in the terms of JSON."""
    match value:
        case dict():
            return {str(key): as_plain(each) for key, each in value.items()}
        case list() | tuple():
            return [as_plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return value.total_seconds()
        case decimal.Decimal() | uuid.UUID():
            return str(value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
    return value
