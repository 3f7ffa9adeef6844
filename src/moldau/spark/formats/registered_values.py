"""JSON and Protobuf whose schemas are in a registry, to columns and back.

A value names its schema, in front or in a header. JSON is read as objects with the running
columns, Protobuf with the running message, whatever version they were written with: both formats
are made for that. What a later version has beyond the columns stops the query, as with Avro.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from moldau.schemas import RegisteredSchema, SchemaError
from moldau.schemas.header import read_name
from moldau.schemas.schema import Dependency
from moldau.spark.formats.arrow_columns import Reasons, to_column
from moldau.spark.formats.avro_values import Names
from moldau.spark.formats.errors import FormatError, NewFields
from moldau.spark.formats.json_schema_types import spark_schema_of_json
from moldau.spark.formats.json_values import JsonDecoder
from moldau.spark.formats.protobuf_types import TIMESTAMP, message_of, spark_schema_of_message

LookUp = Callable[[int | str], RegisteredSchema]


def registered_columns(
    format: str, text: str, dependencies: Sequence[Dependency] = ()
) -> StructType:
    """Return the columns of a registered schema that is not Avro."""
    if format == "json-schema":
        return spark_schema_of_json(text, dependencies)
    return spark_schema_of_message(message_of(text, dependencies))


def extra_columns(reader: StructType, writer: StructType, path: str = "") -> list[str]:
    """Return what the writer's columns have beyond the reader's, each with its type."""
    known = {field.name: field.dataType for field in reader.fields}
    found = []
    for field in writer.fields:
        name = f"{path}{field.name}"
        if field.name not in known:
            found.append(f"{name} ({field.dataType.simpleString()})")
        else:
            inner = _struct(known[field.name]), _struct(field.dataType)
            if inner[0] is not None and inner[1] is not None:
                found += extra_columns(inner[0], inner[1], f"{name}.")
    return found


def _struct(kind: DataType) -> StructType | None:
    if isinstance(kind, ArrayType):
        return _struct(kind.elementType)
    if isinstance(kind, MapType):
        return _struct(kind.valueType)
    return kind if isinstance(kind, StructType) else None


class RegisteredDecoder:
    """Takes names of schemas off, and sees to it that nothing of a newer version is lost."""

    def __init__(
        self,
        format: str,
        schema: StructType,
        text: str,
        dependencies: Sequence[Dependency],
        known: Mapping[int, str],
        look_up: LookUp,
        remedy: str = "",
        guids: Mapping[str, int] | None = None,
    ) -> None:
        self._format = format
        self._schema = schema
        self._known: set[int | str] = {*known, *(guids or ())}
        self._look_up = look_up
        self._remedy = remedy
        self._inner: Any = (
            JsonDecoder(schema)
            if format == "json-schema"
            else _MessageDecoder(schema, message_of(text, dependencies))
        )

    def decode(
        self, values: Sequence[bytes | None], names: Names = None
    ) -> tuple[list[pa.Array], Reasons]:
        """Return the columns, with nulls in the rows that do not parse, and why those do not."""
        bad: Reasons = {}
        pairs = zip(values, names or [None] * len(values), strict=True)
        bodies = [self._body(row, *pair, bad) for row, pair in enumerate(pairs)]
        columns, more = self._inner.decode(bodies)
        return columns, {**more, **bad}

    def _body(
        self, row: int, value: bytes | None, header: bytes | None, bad: Reasons
    ) -> bytes | None:
        if value is None:
            return None
        try:
            schema, start, path = read_name(value, header)
            if schema not in self._known:
                self._meet(row, schema)
        except (ValueError, SchemaError) as problem:
            bad[row] = str(problem)
            return None
        return path + value[start:]

    def _meet(self, row: int, name: int | str) -> None:
        found = self._look_up(name)
        try:
            columns = registered_columns(self._format, found.text, found.dependencies)
        except FormatError as problem:
            raise ValueError(f"schema {name}: {problem}") from None
        fields = extra_columns(self._schema, columns)
        if fields:
            raise NewFields(row, name, fields, self._remedy)
        self._known.add(name)


class _MessageDecoder:
    """Reads messages as rows of columns."""

    def __init__(self, schema: StructType, message: Any) -> None:
        from google.protobuf import message_factory

        self._class = message_factory.GetMessageClass(message)
        self._names = schema.fieldNames()
        self._kinds = [field.type for field in to_arrow_schema(schema, timezone="UTC")]

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[pa.Array], Reasons]:
        from google.protobuf.message import DecodeError

        bad: Reasons = {}
        rows = []
        for row, value in enumerate(values):
            found: dict[str, Any] = {}
            if value is not None:
                try:
                    found = _row(self._class.FromString(_behind_index(value)))
                except (DecodeError, ValueError) as problem:
                    bad[row] = f"not a message of this schema: {problem}"
            rows.append(found)
        columns = [
            to_column(name, [row.get(name) for row in rows], kind, bad)
            for name, kind in zip(self._names, self._kinds, strict=True)
        ]
        return columns, bad


def _behind_index(value: bytes) -> bytes:
    """Return the message behind the path that says which of the file's it is: the first."""
    if value[:1] == b"\0":
        return value[1:]
    if value[:2] == b"\x02\0":
        return value[2:]
    raise ValueError("it is not the first message type of its schema")


def _row(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            of = inner.fields_by_name["value"]
            found[field.name] = {key: _plain(of, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_plain(field, each) for each in value]
        else:
            found[field.name] = _plain(field, value)
    return found


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            from datetime import UTC

            return value.ToDatetime(tzinfo=UTC)
        return _row(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


class ProtobufEncoding:
    """The function that tasks run to write rows as messages; pickled to them."""

    def __init__(self, text: str, dependencies: Sequence[Dependency], header: bytes) -> None:
        self._settings = (text, tuple(dependencies))
        self._header = header + b"\0"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from google.protobuf import message_factory

        kind = message_factory.GetMessageClass(message_of(*self._settings))
        for batch in batches:
            rows = batch.column("value").to_pylist(maps_as_pydicts="strict")
            values = [self._header + _filled(kind(), row).SerializeToString() for row in rows]
            columns = {"value": pa.array(values, pa.binary())}
            if "key" in batch.schema.names:
                columns = {"key": batch.column("key"), **columns}
            yield pa.RecordBatch.from_pydict(columns)


def _filled(message: Any, row: Mapping[str, Any]) -> Any:
    for name, value in row.items():
        if value is None:
            continue
        field = message.DESCRIPTOR.fields_by_name[name]
        target = getattr(message, name)
        if field.message_type is None:
            if field.is_repeated:
                target.extend(value)
            else:
                setattr(message, name, value)
        elif field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            for key, each in value.items():
                if of.message_type is None:
                    target[key] = each
                else:
                    _set(target[key], each)
        elif field.is_repeated:
            for each in value:
                _set(target.add(), each)
        else:
            target.SetInParent()
            _set(target, value)
    return message


def _set(message: Any, value: Any) -> None:
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        message.FromDatetime(value)
    else:
        _filled(message, value)
