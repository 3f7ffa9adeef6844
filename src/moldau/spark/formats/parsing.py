"""Parsing: records with their values as columns, and those of them that are bad."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.security.client import ClientSecurity
from moldau.spark.formats.errors import NewFields, Truncated
from moldau.spark.formats.spec import BAD, Registered, ValueSpec
from moldau.spark.names import ORDER_FIELDS, RECORD_ORDER
from moldau.spark.source.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.formats.arrow_columns import Reasons

NO_VALUE = "the record has no value; set 'tombstones' to choose what to do with such records"

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
RECORD_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


class Decoder(Protocol):
    @property
    def decode(self) -> Callable[..., tuple[list[pa.Array], Reasons]]:
        """Return the columns of values, and why some values are bad. Values of registered schemas
        come with the headers that name their schemas."""


class Parsed(NamedTuple):
    """A batch of records with their values parsed.

    `end` is the offset after the last record that was read, whether there is a row for it or not;
    `bad` are the records that did not parse, as they came, with reasons by their number.
    """

    batch: pa.RecordBatch
    offsets: pa.Array
    end: int
    bad: pa.RecordBatch | None
    reasons: Reasons


def columns_of(spec: ValueSpec) -> StructType:
    """Return all columns of a source: the value's, the record's, and the mark of a bad one."""
    value = StructType.fromJson(json.loads(spec.schema))
    if spec.format == "raw":
        return value
    # A bad record is a row for as long as it takes to count it, with nulls wherever there is none.
    fields = [StructField(field.name, field.dataType) for field in value.fields]
    fields += [StructField(f"_{name}", RECORD_TYPES[name]) for name in spec.metadata]
    if spec.is_ordered:
        order = [StructField(name, RECORD_TYPES[of]) for name, of in ORDER_FIELDS.items()]
        fields.append(StructField(RECORD_ORDER, StructType(order)))
    return StructType([*fields, StructField(BAD, BooleanType())])


def parse(
    batches: Iterator[pa.RecordBatch],
    partition: OffsetRange,
    spec: ValueSpec,
    security: ClientSecurity | None = None,
) -> Iterator[Parsed]:
    """Parse the batches of a range, which are in the order of their offsets."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if spec.format == "raw":
        for batch in batches:
            offsets = batch.column("offset")
            yield Parsed(batch, offsets, _end(offsets, partition), None, {})
        return
    schema = to_arrow_schema(columns_of(spec), timezone="UTC")
    decoder = decoder_of(spec, security)
    for batch in batches:
        yield _parsed(batch, partition, spec, decoder, schema)


def _parsed(
    batch: pa.RecordBatch,
    partition: OffsetRange,
    spec: ValueSpec,
    decoder: Decoder,
    schema: pa.Schema,
) -> Parsed:
    import pyarrow as pa

    from moldau.spark.formats.schema_names import schema_names

    end = _end(batch.column("offset"), partition)
    if spec.tombstones == "skip":
        batch = batch.filter(batch.column("value").is_valid())
    values = batch.column("value").to_pylist()
    given = (values, schema_names(batch)) if spec.format in Registered else (values,)
    try:
        columns, bad = decoder.decode(*given)
    except (NewFields, Truncated) as found:
        offset = batch.column("offset")[found.row].as_py()
        raise found.at(partition.topic, partition.partition, offset) from None
    if spec.tombstones == "dead-letter":
        bad |= {row: NO_VALUE for row, value in enumerate(values) if value is None}
    is_bad = [False] * batch.num_rows
    for row in bad:
        is_bad[row] = True
    columns += [batch.column(name) for name in spec.metadata]
    if spec.is_ordered:
        parts = [batch.column(name) for name in ORDER_FIELDS.values()]
        columns.append(pa.StructArray.from_arrays(parts, names=list(ORDER_FIELDS)))
    columns.append(pa.array(is_bad))
    table = pa.RecordBatch.from_arrays(columns, schema=schema)
    rows = sorted(bad)
    records = batch.take(pa.array(rows, pa.int64())) if rows else None
    reasons = {number: bad[row] for number, row in enumerate(rows)}
    return Parsed(table, batch.column("offset"), end, records, reasons)


def _end(offsets: pa.Array, partition: OffsetRange) -> int:
    last: int = offsets[-1].as_py() if len(offsets) else partition.start - 1
    return last + 1


def decoder_of(spec: ValueSpec, security: ClientSecurity | None = None) -> Decoder:
    if spec.format == "string":
        from moldau.spark.formats.text_values import TextDecoder

        return TextDecoder()
    schema = StructType.fromJson(json.loads(spec.schema))
    if spec.is_debezium:
        return _debezium_decoder(spec, schema, security)
    if spec.format == "json":
        from moldau.spark.formats.json_values import JsonDecoder

        return JsonDecoder(schema)
    from moldau.spark.formats.avro_values import AvroDecoder, looking_up, store_of

    if spec.format != "avro":
        from moldau.spark.formats.registered_values import RegisteredDecoder

        return RegisteredDecoder(
            spec.format,
            schema,
            spec.reader_schema,
            spec.reader_dependencies,
            spec.known_schemas,
            lambda name: store_of(spec.bootstrap, spec.registry, security).named(name),
            spec.remedy,
            spec.known_guids,
        )
    look_up = looking_up(spec.bootstrap, spec.registry, security)
    return AvroDecoder(
        schema, spec.reader_schema, spec.known_schemas, look_up, spec.remedy, spec.known_guids
    )


def _debezium_decoder(
    spec: ValueSpec, schema: StructType, security: ClientSecurity | None
) -> Decoder:
    from moldau.spark.formats.debezium import DebeziumDecoder, events_of_records, json_events

    if spec.format == "json":
        return DebeziumDecoder(schema, json_events(schema), spec.truncates)
    from moldau.spark.formats.avro_types import spark_schema_of

    envelope = spark_schema_of(spec.reader_schema)
    inner = decoder_of(
        msgspec.structs.replace(spec, is_debezium=False, schema=json.dumps(envelope.jsonValue())),
        security,
    )
    return DebeziumDecoder(schema, events_of_records(inner), spec.truncates)
