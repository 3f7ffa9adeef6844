"""`format("moldau-values")`: the source, with the values of its records already parsed.

Parsing happens where records are read, in the same Python process, so that bytes need not cross to
Java and back. Pipelines register it; the frame that `values_of` gives is what people see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

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
from moldau.spark.formats.errors import NewFields
from moldau.spark.formats.newer_schemas import NewerSchemas
from moldau.spark.formats.spec import BAD, ValueSpec
from moldau.spark.names import ORDER_FIELDS, RECORD_ORDER
from moldau.spark.source.batch import BatchReader
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.ranges import OffsetRange
from moldau.spark.source.source import MoldauSource
from moldau.spark.source.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.formats.arrow_columns import Reasons

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
    def decode(self, values: Any) -> tuple[list[pa.Array], Reasons]: ...


class ValueSource(MoldauSource):
    """Not for reading by hand: it takes the source's options, and a `ValueSpec` as one more."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:  # type: ignore[override]
        self._parsed()
        return columns_of(self._spec)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ValueBatchReader(self._parsed(), self._spec)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ValueStreamReader(self._parsed(), self._spec)

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

    def partitions(self) -> list[InputPartition]:
        planned = super().partitions()
        if self._spec.format == "avro":
            with Cluster(self._read.bootstrap, self._read.peer) as cluster:
                self._newer.check(cluster, planned)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return parsed(super().read(partition), partition, self._spec)


class ValueStreamReader(StreamReader):
    def __init__(self, options: SourceOptions, spec: ValueSpec) -> None:
        super().__init__(options)
        self._spec = spec
        self._newer = NewerSchemas(spec, options)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = super().partitions(start, end)
        if self._spec.format == "avro":
            self._newer.check(self._connected, planned)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return parsed(super().read(partition), partition, self._spec)


def columns_of(spec: ValueSpec) -> StructType:
    """Return all columns of a source: the value's, the record's, and the mark of a bad one."""
    import json

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
    batches: Iterator[pa.RecordBatch], partition: InputPartition, spec: ValueSpec
) -> Iterator[pa.RecordBatch]:
    """The batches of a task with their values parsed; dead letters have arrived at its end."""
    if spec.format == "raw" or not isinstance(partition, OffsetRange):
        yield from batches
        return
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from moldau.spark.sink.dead_letters import DeadLetters

    schema = to_arrow_schema(columns_of(spec), timezone="UTC")
    decoder = decoder_of(spec)
    letters = DeadLetters(spec.bootstrap, spec.bad_records, spec.source)
    for batch in batches:
        if spec.tombstones == "skip":
            batch = batch.filter(batch.column("value").is_valid())
        values = batch.column("value").to_pylist()
        try:
            columns, bad = decoder.decode(values)
        except NewFields as found:
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
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
    letters.flush()


def decoder_of(spec: ValueSpec) -> Decoder:
    import json

    if spec.format == "string":
        from moldau.spark.formats.text_values import TextDecoder

        return TextDecoder()
    schema = StructType.fromJson(json.loads(spec.schema))
    if spec.format == "json":
        from moldau.spark.formats.json_values import JsonDecoder

        return JsonDecoder(schema)
    from moldau.spark.formats.avro_values import AvroDecoder, looking_up

    look_up = looking_up(spec.bootstrap)
    return AvroDecoder(schema, spec.reader_schema, spec.known_schemas, look_up, spec.remedy)


def source_options(spec: ValueSpec, options: Mapping[str, str]) -> dict[str, str]:
    return dict(options) | {OPTION: spec.to_option()}
