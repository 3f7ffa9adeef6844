"""JSON objects to columns, strictly: a value of another type than the schema's does not parse."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
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
    TimestampNTZType,
    TimestampType,
)

from moldau.spark.formats.arrow_columns import Reasons, to_column
from moldau.spark.formats.errors import FormatError

# Everything that the parser raises for bytes that are not such an object.
NOT_JSON = (msgspec.MsgspecError, ValueError, RecursionError)

_INTEGERS: dict[type[DataType], int] = {
    ByteType: 7,
    ShortType: 15,
    IntegerType: 31,
    LongType: 63,
}
_SIMPLE: dict[type[DataType], Any] = {
    BooleanType: bool,
    FloatType: float,
    DoubleType: float,
    DecimalType: Decimal,
    StringType: str,
    BinaryType: bytes,
    DateType: datetime.date,
    TimestampType: datetime.datetime,
    TimestampNTZType: Annotated[datetime.datetime, msgspec.Meta(tz=False)],
}
_SIMPLE |= {
    kind: Annotated[int, msgspec.Meta(ge=-(1 << bits), le=(1 << bits) - 1)]
    for kind, bits in _INTEGERS.items()
}

# Types made at run time are nothing for a type checker.
_typed_dict: Any = TypedDict


class JsonDecoder:
    """Reads objects with the fields of a schema.

    Fields beyond it are passed over, and missing ones null, unless they are `NOT NULL`. A time
    without a zone is UTC's; binary values are base64.
    """

    def __init__(self, schema: StructType) -> None:
        self._names = schema.fieldNames()
        self._kinds = [field.type for field in to_arrow_schema(schema, timezone="UTC")]
        # A field may have any name in JSON, and an attribute may not.
        attributes = [f"field_{number}" for number in range(len(self._names))]
        self._getters = [attrgetter(name) for name in attributes]
        fields: list[Any] = [
            (attribute, json_type(field.dataType))
            if not field.nullable
            else (attribute, json_type(field.dataType) | None, None)
            for attribute, field in zip(attributes, schema.fields, strict=True)
        ]
        record = msgspec.defstruct(
            "Value",
            fields,
            rename=dict(zip(attributes, self._names, strict=True)),
            kw_only=True,
            gc=False,
        )
        self._decode = msgspec.json.Decoder(record).decode
        self._nothing = msgspec.defstruct(
            "Nothing", [(name, Any, None) for name in attributes], gc=False
        )()

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[pa.Array], Reasons]:
        """Return the columns, with nulls in the rows that do not parse, and why those do not.

        A record without a value is a row of nulls.
        """
        bad: Reasons = {}
        try:
            found: list[Any] = list(map(self._decode, values))  # type: ignore[arg-type]
        except (*NOT_JSON, TypeError):
            found = [self._one(row, value, bad) for row, value in enumerate(values)]
        columns = [
            to_column(name, list(map(get, found)), kind, bad)
            for name, get, kind in zip(self._names, self._getters, self._kinds, strict=True)
        ]
        return columns, bad

    def _one(self, row: int, value: bytes | None, bad: Reasons) -> Any:
        if value is None:
            return self._nothing
        try:
            return self._decode(value)
        except NOT_JSON as problem:
            bad[row] = self._in_words(problem)
            return self._nothing

    def _in_words(self, problem: Exception) -> str:
        text = str(problem) or type(problem).__name__
        return text if isinstance(problem, msgspec.ValidationError) else f"not JSON: {text}"


def json_type(kind: DataType) -> Any:
    """Return the type that msgspec parses for a type of Spark's; FormatError if JSON cannot have
    it."""
    simple = _SIMPLE.get(type(kind))
    if simple is not None:
        return simple
    if isinstance(kind, ArrayType):
        return list[_nullable(kind.elementType)]  # type: ignore[misc]
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return dict[str, _nullable(kind.valueType)]  # type: ignore[misc]
    if isinstance(kind, StructType):
        fields = {field.name: _of_field(field) for field in kind.fields}
        return _typed_dict("Nested", fields, total=False)
    raise FormatError(f"JSON has no {kind.simpleString()}")


def _nullable(kind: DataType) -> Any:
    return json_type(kind) | None


def _of_field(field: StructField) -> Any:
    return json_type(field.dataType) if not field.nullable else _nullable(field.dataType)
