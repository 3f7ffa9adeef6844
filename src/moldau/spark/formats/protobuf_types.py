"""Protobuf's types and Spark's: how a schema of one reads in the other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.schemas.protobuf.schema import ProtobufSchema
from moldau.schemas.schema import Dependency, InvalidSchema
from moldau.spark.formats.errors import FormatError

TIMESTAMP = "google.protobuf.Timestamp"
# By the numbers of descriptors; what has no sign needs the next larger type.
_SIMPLE: dict[int, DataType] = {
    1: DoubleType(), 2: FloatType(), 3: LongType(), 4: DecimalType(20, 0), 5: IntegerType(),
    6: DecimalType(20, 0), 7: LongType(), 8: BooleanType(), 9: StringType(), 12: BinaryType(),
    13: LongType(), 14: StringType(), 15: IntegerType(), 16: LongType(), 17: IntegerType(),
    18: LongType(),
}  # fmt: skip
_OF_SPARK: dict[type[DataType], str] = {
    BooleanType: "bool",
    ByteType: "int32",
    ShortType: "int32",
    IntegerType: "int32",
    LongType: "int64",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Numbers that fields had in earlier versions, by message and field.
Numbers = Mapping[str, Mapping[str, int]]


def message_of(text: str, dependencies: Sequence[Dependency] = ()) -> Any:
    """Return the descriptor of a schema's first message, in a pool of its own."""
    from google.protobuf import descriptor_pool

    try:
        schema = ProtobufSchema(text, dependencies)
    except InvalidSchema as problem:
        raise FormatError(str(problem)) from None
    if not schema.file.message_type:
        raise FormatError("the Protobuf schema has no message")
    pool = descriptor_pool.DescriptorPool()
    for file in [*schema.imports.values(), schema.file]:
        pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName(schema.full_name)


def spark_schema_of_message(message: Any, inside: tuple[str, ...] = ()) -> StructType:
    """Return the columns of a message."""
    if message.full_name in inside:
        raise FormatError(f"{message.full_name} contains itself, which columns cannot represent")
    inside = (*inside, message.full_name)
    return StructType([StructField(field.name, _type(field, inside)) for field in message.fields])


def _type(field: Any, inside: tuple[str, ...]) -> DataType:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return MapType(_single(key, inside), _single(value, inside))
    kind = _single(field, inside)
    return ArrayType(kind) if field.is_repeated else kind


def _single(field: Any, inside: tuple[str, ...]) -> DataType:
    if field.message_type is None:
        return _SIMPLE[field.type]
    if field.message_type.full_name == TIMESTAMP:
        return TimestampType()
    if not field.message_type.fields:
        raise FormatError(
            f"{field.message_type.full_name} has no fields; a column needs at least one"
        )
    return spark_schema_of_message(field.message_type, inside)


def proto_of(schema: StructType, name: str, before: Numbers) -> str:
    """Return a schema with a message of these columns.

    Fields keep the numbers that they had in earlier versions, and no number is given again.
    """
    message = re.sub(r"\W", "_", name)
    message = f"_{message}" if message[:1].isdigit() else message
    body = _message(schema, message, message, before)
    uses_time = "google.protobuf.Timestamp" in body
    head = 'import "google/protobuf/timestamp.proto";\n' if uses_time else ""
    return f'syntax = "proto3";\n{head}{body}'


def numbers_of(text: str, dependencies: Sequence[Dependency] = ()) -> dict[str, dict[str, int]]:
    """Return the numbers of the fields of each message, by its path from the outermost."""
    found: dict[str, dict[str, int]] = {}
    waiting = [("", message) for message in ProtobufSchema(text, dependencies).file.message_type]
    while waiting:
        around, message = waiting.pop()
        path = f"{around}{message.name}"
        found[path] = {field.name: field.number for field in message.field}
        waiting += [(f"{path}.", inner) for inner in message.nested_type]
    return found


def _message(schema: StructType, name: str, path: str, before: Numbers) -> str:
    known = before.get(path, {})
    free = max(known.values(), default=0) + 1
    lines, nested = [], []
    for field in schema.fields:
        if _IDENTIFIER.fullmatch(field.name) is None:
            raise FormatError(f"Protobuf has no field {field.name!r}; rename the column")
        number = known.get(field.name)
        if number is None:
            number, free = free, free + 1
        kind, inner = _of_type(field.dataType, f"Of_{field.name}", path, before)
        nested += [] if inner is None else [inner]
        is_plain = kind.startswith(("map<", "repeated "))
        label = "optional " if field.nullable and not is_plain else ""
        lines.append(f"  {label}{kind} {field.name} = {number};")
    return f"message {name} {{\n" + "\n".join([*lines, *nested]) + "\n}\n"


def _of_type(kind: DataType, name: str, path: str, before: Numbers) -> tuple[str, str | None]:
    simple = _OF_SPARK.get(type(kind))
    if simple is not None:
        return simple, None
    if isinstance(kind, TimestampType):
        return f".{TIMESTAMP}", None
    if isinstance(kind, StructType):
        return name, _message(kind, name, f"{path}.{name}", before)
    if isinstance(kind, ArrayType) and not isinstance(kind.elementType, ArrayType | MapType):
        inner, nested = _of_type(kind.elementType, name, path, before)
        return f"repeated {inner}", nested
    if (
        isinstance(kind, MapType)
        and isinstance(kind.keyType, StringType)
        and not isinstance(kind.valueType, ArrayType | MapType)
    ):
        inner, nested = _of_type(kind.valueType, name, path, before)
        return f"map<string, {inner}>", nested
    raise FormatError(f"Protobuf has no {kind.simpleString()}; cast the column")
