"""Columns to the key and value of records: the writing side of the formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from moldau.spark.formats.errors import FormatError
from moldau.spark.formats.spec import Format

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

RECORD_COLUMNS = ("key", "value", "headers", "partition", "topic")


def encoded(
    frame: DataFrame,
    format: Format,
    *,
    key: Sequence[str] = (),
    avro: tuple[str, bytes, str] | None = None,
) -> DataFrame:
    """Return the frame as `format("moldau")` writes it.

    `key` names the columns of the key: one is written as text, several as a JSON array. For Avro,
    `avro` is the schema's text, its header and the topic.
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

    assert avro is not None
    rows = frame.select(*keys, F.struct(*columns).alias("value"))
    schema = "key string, value binary" if keys else "value binary"
    return map_in_arrow(rows, _AvroEncoding(*avro), schema)


def avro_columns(frame: DataFrame, name: str) -> str:
    """Return the Avro schema for a frame's columns, as JSON."""
    import json

    from moldau.spark.formats.avro_types import avro_schema_of

    return json.dumps(avro_schema_of(frame.schema, name))


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
            f"with the format raw, the columns are those of records ({', '.join(RECORD_COLUMNS)}), "
            f"not {', '.join(unknown or frame.columns)}"
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
