"""Columns to the key and value of records: the writing side of the formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from moldau.schemas.schema import SchemaType
from moldau.spark.formats.errors import FormatError
from moldau.spark.formats.spec import Format

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from moldau.schemas import RegisteredSchema

# A schema's text, the header that names it, and the topic.
Written = tuple[str, bytes, str]
SCHEMA_TYPES = {
    "avro": SchemaType.AVRO,
    "json-schema": SchemaType.JSON,
    "protobuf": SchemaType.PROTOBUF,
}
RECORD_COLUMNS = ("key", "value", "headers", "partition", "topic")


def encoded(
    frame: DataFrame,
    format: Format,
    *,
    key: Sequence[str] = (),
    registered: Written | None = None,
) -> DataFrame:
    """Return the frame as `format("moldau")` writes it.

    `key` names the columns of the key: one is written as text, several as a JSON array. For
    registered schemas, `registered` is the schema's text, its header and the topic.
    """
    from pyspark.sql import functions as F

    if format == "raw":
        return _raw(frame, key)
    keys: list[Column] = [] if not key else [_key(frame, key)]
    if format == "string":
        return frame.select(*keys, F.col(_only_column(frame, key)).cast("string").alias("value"))
    # Column names may have dots, which would mean a field of a struct.
    columns = [frame[f"`{name}`"] for name in frame.columns]
    if format == "json":
        options = {"ignoreNullFields": "false"}
        return frame.select(*keys, F.to_json(F.struct(*columns), options).alias("value"))
    from moldau.spark.lake.tasks import map_in_arrow

    assert registered is not None
    if format == "json-schema":
        text = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).cast("binary")
        return frame.select(*keys, F.concat(F.lit(registered[1]), text).alias("value"))
    encoding: Any = _AvroEncoding(*registered)
    if format == "protobuf":
        from moldau.spark.formats.registered_values import ProtobufEncoding

        encoding = ProtobufEncoding(registered[0], (), registered[1])
    rows = frame.select(*keys, F.struct(*columns).alias("value"))
    schema = "key string, value binary" if keys else "value binary"
    return map_in_arrow(rows, encoding, schema)


def columns_as_schema(frame: DataFrame, format: str, name: str) -> str:
    """Return the Avro schema or JSON Schema for a frame's columns."""
    import json

    if format == "json-schema":
        from moldau.spark.formats.json_schema_types import json_schema_of

        return json.dumps(json_schema_of(frame.schema, name))
    from moldau.spark.formats.avro_types import avro_schema_of

    return json.dumps(avro_schema_of(frame.schema, name))


def columns_as_proto(frame: DataFrame, name: str, versions: Sequence[RegisteredSchema]) -> str:
    """Return the Protobuf schema for a frame's columns, with the numbers of earlier versions."""
    from moldau.spark.formats.protobuf_types import numbers_of, proto_of

    before: dict[str, dict[str, int]] = {}
    for version in versions:
        if version.type is SchemaType.PROTOBUF:
            for message, numbers in numbers_of(version.text, version.dependencies).items():
                before[message] = before.get(message, {}) | numbers
    return proto_of(frame.schema, name, before)


def require_schema_has_columns(frame: DataFrame, format: str, text: str) -> None:
    """Raise FormatError if a schema of a file has no place for a column; Avro says so itself."""
    if format == "avro":
        return
    from moldau.spark.formats.registered_values import extra_columns, registered_columns

    lost = extra_columns(registered_columns(format, text), frame.schema)
    if lost:
        raise FormatError(f"the schema has no field for {', '.join(lost)}")


class _AvroEncoding:
    """The function that tasks run; pickled to them."""

    def __init__(self, schema: str, header: bytes, topic: str) -> None:
        self._settings = (schema, header, topic)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from moldau.spark.formats.avro_values import AvroEncoder

        encoder = AvroEncoder(*self._settings)
        for batch in batches:
            rows = batch.column("value").to_pylist(maps_as_pydicts="strict")
            columns = {"value": pa.array(encoder.encode(rows), pa.binary())}
            if "key" in batch.schema.names:
                columns = {"key": batch.column("key"), **columns}
            yield pa.RecordBatch.from_pydict(columns)


def _key(frame: DataFrame, key: Sequence[str]) -> Column:
    from pyspark.sql import functions as F

    columns = [frame[f"`{name}`"].cast("string") for name in key]
    return (columns[0] if len(columns) == 1 else F.to_json(F.array(*columns))).alias("key")


def _raw(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    if key:
        raise FormatError("with the format raw, the column `key` is the key; leave out the setting")
    unknown = [name for name in frame.columns if name not in RECORD_COLUMNS]
    if unknown or "value" not in frame.columns:
        raise FormatError(
            "with the format raw, the columns must be those of records "
            f"({', '.join(RECORD_COLUMNS)}), not {', '.join(unknown or frame.columns)}"
        )
    return frame


def _only_column(frame: DataFrame, key: Sequence[str]) -> str:
    rest = [name for name in frame.columns if name not in key]
    if "value" in rest:
        return "`value`"
    if len(rest) != 1:
        raise FormatError(
            "with the format string, there must be one column besides the key, "
            f"or one called `value`; there are {', '.join(rest) or 'none'}"
        )
    return f"`{rest[0]}`"
