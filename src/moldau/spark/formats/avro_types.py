"""Avro's types and Spark's: how a schema of one reads in the other."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

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

from moldau.client.avro import parse_avro
from moldau.spark.formats.errors import FormatError

_PRIMITIVE: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
    "uuid": StringType(),
}
_OF_SPARK: dict[type[DataType], Any] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "bytes",
    StringType: "string",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def spark_schema_of(text: str) -> StructType:
    """Return the columns of records of an Avro schema; FormatError if it is not of a record."""
    try:
        parsed = parse_avro(json.loads(text))
    except ValueError as problem:
        raise FormatError(str(problem)) from None
    kind = _spark_type(parsed, {}, ()) if isinstance(parsed, dict) else None
    if not isinstance(kind, StructType):
        raise FormatError("the Avro schema of a topic's values must be a record")
    return kind


def _spark_type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> DataType:
    if isinstance(schema, list):
        return _of_union(schema, named, inside)
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        if schema in inside:
            raise FormatError(f"{schema} contains itself, which columns cannot represent")
        if schema in named:
            return _spark_type(named[schema], named, inside)
        raise FormatError(f"{schema!r} has no column type")
    kind = schema["type"]
    logical = schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind in ("record", "error"):
        name = str(schema["name"])
        named[name] = schema
        fields = [
            StructField(
                field["name"],
                _spark_type(field["type"], named, (*inside, name)),
                _may_be_null(field["type"]),
            )
            for field in schema["fields"]
        ]
        return StructType(fields)
    if kind == "enum":
        named[str(schema["name"])] = schema
        return StringType()
    if kind == "fixed":
        named[str(schema["name"])] = schema
        return BinaryType()
    if kind == "array":
        items = schema["items"]
        return ArrayType(_spark_type(items, named, inside), _may_be_null(items))
    if kind == "map":
        values = schema["values"]
        return MapType(StringType(), _spark_type(values, named, inside), _may_be_null(values))
    return _spark_type(kind, named, inside)


def _of_union(schema: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> DataType:
    kinds = [_spark_type(each, named, inside) for each in schema if each != "null"]
    if not kinds or any(kind != kinds[0] for kind in kinds[1:]):
        shown = ", ".join(each if isinstance(each, str) else each["type"] for each in schema)
        raise FormatError(f"a union of {shown} has no single column type")
    return kinds[0]


def _may_be_null(schema: Any) -> bool:
    return isinstance(schema, list) and "null" in schema


def avro_schema_of(schema: StructType, name: str) -> dict[str, Any]:
    """Return an Avro record with these columns; what may be null is a union with null."""
    record = re.sub(r"\W", "_", name)
    return _avro_record(schema, record if not record[:1].isdigit() else f"_{record}")


def _avro_record(schema: StructType, name: str) -> dict[str, Any]:
    fields = []
    for field in schema.fields:
        if re.fullmatch(r"[A-Za-z_]\w*", field.name, re.ASCII) is None:
            raise FormatError(f"Avro has no field {field.name!r}; rename the column")
        fields.append(_avro_field(field, f"{name}_{field.name}"))
    return {"type": "record", "name": name, "fields": fields}


def _avro_field(field: StructField, name: str) -> dict[str, Any]:
    kind = _avro_type(field.dataType, name)
    if field.nullable:
        return {"name": field.name, "type": ["null", kind], "default": None}
    return {"name": field.name, "type": kind}


def _avro_type(kind: DataType, name: str) -> Any:
    simple = _OF_SPARK.get(type(kind))
    if simple is not None:
        return simple
    if isinstance(kind, DecimalType):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if isinstance(kind, ArrayType):
        items = _avro_type(kind.elementType, name)
        return {"type": "array", "items": ["null", items] if kind.containsNull else items}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        values = _avro_type(kind.valueType, name)
        return {"type": "map", "values": ["null", values] if kind.valueContainsNull else values}
    if isinstance(kind, StructType):
        return _avro_record(kind, name)
    raise FormatError(f"Avro has no {kind.simpleString()}; cast the column")


def without_times_of_day(schema: Any) -> Any:
    """Return the schema with `time-*` read as the plain numbers that Spark has for them."""
    if isinstance(schema, list):
        return [without_times_of_day(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    logical = schema.get("logicalType", "")
    return {
        name: without_times_of_day(value) if name != "default" else value
        for name, value in schema.items()
        if not (name == "logicalType" and str(logical).startswith("time-"))
    }
