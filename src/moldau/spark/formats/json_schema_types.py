"""JSON Schema's types and Spark's: how a schema of one reads in the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

from moldau.schemas.json_schema.documents import Documents
from moldau.schemas.schema import Dependency, InvalidSchema
from moldau.spark.formats.errors import FormatError

_SIMPLE: dict[str, DataType] = {
    "boolean": BooleanType(),
    "integer": LongType(),
    "number": DoubleType(),
}
_TEXTS: dict[str, DataType] = {"date-time": TimestampType(), "date": DateType()}
_OF_SPARK: dict[type[DataType], dict[str, Any]] = {
    BooleanType: {"type": "boolean"},
    ByteType: {"type": "integer"},
    ShortType: {"type": "integer"},
    IntegerType: {"type": "integer"},
    LongType: {"type": "integer"},
    FloatType: {"type": "number"},
    DoubleType: {"type": "number"},
    DecimalType: {"type": "number"},
    StringType: {"type": "string"},
    BinaryType: {"type": "string", "contentEncoding": "base64"},
    DateType: {"type": "string", "format": "date"},
    TimestampType: {"type": "string", "format": "date-time"},
    TimestampNTZType: {"type": "string", "format": "date-time"},
}


def spark_schema_of_json(text: str, dependencies: Sequence[Dependency] = ()) -> StructType:
    """Return the columns of objects of a JSON Schema; FormatError if it is not of objects."""
    try:
        documents = Documents(text, dependencies)
        kind = _Reading(documents).type_of(documents.root, ())
    except InvalidSchema as problem:
        raise FormatError(f"not a JSON Schema: {problem}") from None
    if not isinstance(kind, StructType):
        raise FormatError("the JSON Schema of a topic's values must describe an object")
    return kind


class _Reading:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def type_of(self, schema: Any, inside: tuple[int, ...]) -> DataType:
        schema = self._resolved(schema)
        if id(schema) in inside:
            raise FormatError("a schema contains itself, which columns cannot represent")
        inside = (*inside, id(schema))
        for union in ("oneOf", "anyOf"):
            if union in schema:
                return self._of_union(schema[union], inside)
        if "allOf" in schema:
            return self._of_all(schema, inside)
        kind = self._kind(schema)
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if kind == "string":
            if schema.get("contentEncoding") == "base64":
                return BinaryType()
            return _TEXTS.get(schema.get("format", ""), StringType())
        if kind == "array":
            items = schema.get("items")
            if not isinstance(items, Mapping):
                raise FormatError(
                    "an array needs a single schema for all its items to become a column"
                )
            return ArrayType(self.type_of(items, inside))
        return self._of_object(schema, inside)

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        while isinstance(schema, Mapping) and "$ref" in schema:
            schema = self._documents.target(schema)
        if not isinstance(schema, Mapping):
            raise FormatError("a property that allows any value has no column type")
        return schema

    def _kind(self, schema: Mapping[str, Any]) -> str:
        given = schema.get("type")
        kinds = [given] if isinstance(given, str) else list(given or ())
        kinds = [each for each in kinds if each != "null"]
        if not kinds and "properties" in schema:
            return "object"
        if not kinds and all(isinstance(each, str) for each in schema.get("enum", [0])):
            return "string"
        if len(kinds) != 1:
            shown = ", ".join(kinds) or "any type"
            raise FormatError(f"a property of {shown} has no single column type")
        return str(kinds[0])

    def _of_union(self, branches: Sequence[Any], inside: tuple[int, ...]) -> DataType:
        kinds = [
            self.type_of(branch, inside)
            for branch in branches
            if self._resolved(branch).get("type") != "null"
        ]
        if not kinds or any(kind != kinds[0] for kind in kinds[1:]):
            raise FormatError("a union of several types has no single column type")
        return kinds[0]

    def _of_all(self, schema: Mapping[str, Any], inside: tuple[int, ...]) -> DataType:
        """Put the properties of all parts together."""
        fields: dict[str, StructField] = {}
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        for part in [*schema["allOf"], *([rest] if "properties" in rest else [])]:
            kind = self.type_of(part, inside)
            if not isinstance(kind, StructType):
                return kind
            fields |= {field.name: field for field in kind.fields}
        return StructType(list(fields.values()))

    def _of_object(self, schema: Mapping[str, Any], inside: tuple[int, ...]) -> DataType:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        if not properties and isinstance(others, Mapping):
            return MapType(StringType(), self.type_of(others, inside))
        required = schema.get("required", ())
        return StructType(
            [
                StructField(
                    name, self.type_of(inner, inside), not self._is_there(inner, name, required)
                )
                for name, inner in properties.items()
            ]
        )

    def _is_there(self, schema: Any, name: str, required: Sequence[str]) -> bool:
        """Tell whether every object has a value for a property."""
        given = self._resolved(schema).get("type")
        return name in required and given is not None and "null" not in given


def json_schema_of(schema: StructType, name: str) -> dict[str, Any]:
    """Return a JSON Schema of objects with these columns and no others."""
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "title": name, **_object(schema)}


def _object(schema: StructType) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _of_field(field) for field in schema.fields},
        # Closed, so that a column may be added later: any property could have been there else.
        "additionalProperties": False,
    }
    required = [field.name for field in schema.fields if not field.nullable]
    return {**found, "required": required} if required else found


def _of_field(field: StructField) -> dict[str, Any]:
    return _nullable(_of_type(field.dataType), field.nullable)


def _nullable(schema: dict[str, Any], is_nullable: bool) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]} if is_nullable else schema


def _of_type(kind: DataType) -> dict[str, Any]:
    simple = _OF_SPARK.get(type(kind))
    if simple is not None:
        return dict(simple)
    if isinstance(kind, ArrayType):
        items = _nullable(_of_type(kind.elementType), kind.containsNull)
        return {"type": "array", "items": items}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        values = _nullable(_of_type(kind.valueType), kind.valueContainsNull)
        return {"type": "object", "additionalProperties": values}
    if isinstance(kind, StructType):
        return _object(kind)
    raise FormatError(f"JSON has no {kind.simpleString()}; cast the column")
