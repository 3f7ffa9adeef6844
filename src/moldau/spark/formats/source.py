"""`format("moldau-values")`: the source, with the values of its records already parsed.

Parsing happens where records are read, in the same Python process, so that bytes need not cross to
Java and back. Pipelines register it; the frame that `values_of` gives is what people see.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import msgspec
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
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

from moldau.peer.cluster import Cluster
from moldau.security.client import ClientSecurity
from moldau.spark.formats.errors import NewFields, Truncated
from moldau.spark.formats.newer_schemas import NewerSchemas
from moldau.spark.formats.spec import BAD, Registered, ValueSpec
from moldau.spark.names import ORDER_FIELDS, RECORD_ORDER
from moldau.spark.source.batch import BatchReader
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.ranges import OffsetRange
from moldau.spark.source.source import MoldauSource
from moldau.spark.source.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.formats.arrow_columns import Reasons
    from moldau.spark.sink.dead_letters import DeadLetters

NAME = "moldau-values"
OPTION = "values"

NO_VALUE = "the record has no value; the setting 'tombstones' says what to do with such records"

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
        """Gives the columns of values, and why some are bad; those of registered schemas are given
        with the headers that name these."""


class ValueSource(MoldauSource):
    """Not for reading by hand: it takes the source's options, and a `ValueSpec` as one more."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:  # type: ignore[override]
        self._parsed()
        return columns_of(self._spec)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ValueBatchReader(self._parsed(), self._spec.resolved())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ValueStreamReader(self._parsed(), self._spec.resolved())

    @property
    def _spec(self) -> ValueSpec:
        return ValueSpec.of_option(self.options[OPTION])

    def _parsed(self) -> SourceOptions:
        spec = self._spec
        given = {name: value for name, value in self.options.items() if name.lower() != OPTION}
        options = SourceOptions.parse(given | {"columns": ",".join(spec.record_columns)})
        subscription = replace(options.subscription, left_out=spec.left_out)
        return replace(options, subscription=subscription)


class ValueBatchReader(BatchReader):
    def __init__(self, options: SourceOptions, spec: ValueSpec) -> None:
        super().__init__(options)
        self._spec = spec
        self._newer = NewerSchemas(spec, options)
        self._name = uuid4().hex

    def partitions(self) -> list[InputPartition]:
        planned = super().partitions()
        if self._spec.format in Registered:
            with Cluster(self._read.bootstrap, self._read.peer) as cluster:
                self._newer.check(cluster, planned)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        security = self._read.peer.security
        return parsed(super().read(partition), partition, self._spec, security, self._name)


class ValueStreamReader(StreamReader):
    def __init__(self, options: SourceOptions, spec: ValueSpec) -> None:
        super().__init__(options)
        self._spec = spec
        self._newer = NewerSchemas(spec, options)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = super().partitions(start, end)
        if self._spec.format in Registered:
            self._newer.check(self._connected, planned)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        security = self._read.peer.security
        return parsed(super().read(partition), partition, self._spec, security)


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


def parsed(
    batches: Iterator[pa.RecordBatch],
    partition: InputPartition,
    spec: ValueSpec,
    security: ClientSecurity | None = None,
    single: str = "",
) -> Iterator[pa.RecordBatch]:
    """The batches of a task with their values parsed; dead letters have arrived at its end.

    `single` names a reading that is no stream's.
    """
    if spec.format == "raw" or not isinstance(partition, OffsetRange):
        yield from batches
        return
    from pyspark.sql.pandas.types import to_arrow_schema

    from moldau.spark.sink.dead_letters import DeadLetters
    from moldau.spark.sink.staged_letters import reading_of_task

    schema = to_arrow_schema(columns_of(spec), timezone="UTC")
    decoder = decoder_of(spec, security)
    reading = reading_of_task(spec.source, single, partition)
    letters = DeadLetters(spec.bootstrap, spec.bad_records, spec.source, reading, security)
    try:
        for batch in batches:
            yield _parsed(batch, partition, spec, decoder, schema, letters)
        letters.flush()
    finally:
        letters.close()


def _parsed(
    batch: pa.RecordBatch,
    partition: OffsetRange,
    spec: ValueSpec,
    decoder: Decoder,
    schema: pa.Schema,
    letters: DeadLetters,
) -> pa.RecordBatch:
    """Return a batch with its values parsed; those that do not parse become letters."""
    import pyarrow as pa

    from moldau.spark.formats.schema_names import schema_names

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
    if bad:
        letters.send(batch, bad, partition.topic, partition.partition)
    is_bad = [False] * batch.num_rows
    for row in bad:
        is_bad[row] = True
    columns += [batch.column(name) for name in spec.metadata]
    if spec.is_ordered:
        parts = [batch.column(name) for name in ORDER_FIELDS.values()]
        columns.append(pa.StructArray.from_arrays(parts, names=list(ORDER_FIELDS)))
    columns.append(pa.array(is_bad))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


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


def source_options(spec: ValueSpec, options: Mapping[str, str]) -> dict[str, str]:
    return dict(options) | {OPTION: spec.to_option()}
