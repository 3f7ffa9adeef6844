"""`format("moldau-values")`: the source, with the values of its records already parsed.

Parsing happens where records are read, in the same Python process, so that bytes need not cross to
Java and back. Pipelines register it; the frame that `values_of` gives is what people see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from moldau.peer.cluster import Cluster
from moldau.security.client import ClientSecurity
from moldau.spark.formats.newer_schemas import NewerSchemas
from moldau.spark.formats.parsing import Parsed, columns_of, parse
from moldau.spark.formats.shared_batches import SharedBatches
from moldau.spark.formats.spec import Registered, ValueSpec
from moldau.spark.source.batch import BatchReader
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.ranges import OffsetRange
from moldau.spark.source.source import MoldauSource
from moldau.spark.source.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "moldau-values"
OPTION = "values"


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
        options = SourceOptions.parse(given | {"columns": ",".join(spec.common.record_columns)})
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
        # Spark makes a partition of its own where there is none to read.
        if not isinstance(partition, OffsetRange):
            return iter(())
        security = self._read.peer.security
        return parsed(super().read, partition, self._spec, security, self._name)


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
        assert isinstance(partition, OffsetRange)
        return parsed(super().read, partition, self._spec, self._read.peer.security)


def parsed(
    read: Callable[[OffsetRange], Iterator[pa.RecordBatch]],
    partition: OffsetRange,
    spec: ValueSpec,
    security: ClientSecurity | None = None,
    single: str = "",
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task with their values parsed; dead letters have arrived at its end.

    `single` names a reading that is no stream's.
    """
    from moldau.spark.sink.dead_letters import DeadLetters
    from moldau.spark.sink.staged_letters import reading_of_task

    def parse_range(wanted: OffsetRange) -> Iterator[Parsed]:
        return parse(read(wanted), wanted, spec.common, security)

    if spec.sharing is None:
        pieces = parse_range(partition)
    else:
        shared = SharedBatches.of(spec, spec.sharing, partition)
        pieces = shared.read(partition, parse_range)
    columns = columns_of(spec).names
    reading = reading_of_task(spec.source, single, partition)
    letters = DeadLetters(spec.bootstrap, spec.bad_records, spec.source, reading, security)
    try:
        for piece in pieces:
            if piece.bad is not None:
                letters.send(piece.bad, piece.reasons, partition.topic, partition.partition)
            yield piece.batch.select(columns)
        letters.flush()
    finally:
        letters.close()


def source_options(spec: ValueSpec, options: Mapping[str, str]) -> dict[str, str]:
    return dict(options) | {OPTION: spec.to_option()}
