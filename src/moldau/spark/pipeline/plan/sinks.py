"""Sinks: a streaming query for each, or a single write for a replay."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.spark.formats.encoding import avro_columns, encoded
from moldau.spark.formats.errors import FormatError
from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.file.settings import (
    AnySink,
    ConsoleSink,
    DeltaSinkSettings,
    ParquetSink,
    TopicSink,
)
from moldau.spark.pipeline.plan.modes import OutputMode
from moldau.spark.pipeline.reasons import in_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from moldau.schemas import SchemaStore
    from moldau.spark.lake import DeltaSink, Offsets
    from moldau.spark.sink.options import SinkOptions

# Beside a folder of Parquet files: the windows that were open when a bounded run ended.
OPEN_WINDOWS = "-open"

WriteBatch = Callable[["DataFrame", int], None]


class BatchFailed(Exception):
    """A batch was not written; the reason is kept in the sink's outcome."""


@dataclass
class Outcome:
    """The outcome of a sink so far; Spark's threads change it."""

    rows: int = 0
    failure: BaseException | None = None
    skipped: int = 0


def send_records(
    options: SinkOptions, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows to a topic; everything is acknowledged at its end."""
    import pyarrow as pa

    from moldau.spark.sink.sink import write_records

    written = write_records(options, batches)
    yield pa.RecordBatch.from_pydict({"records": pa.array([written.records], pa.int64())})


@dataclass
class Writer:
    """One sink of a file. `app_id` names it in the log of a Delta table."""

    file: PipelineFile
    name: str
    store: Callable[[], SchemaStore]
    app_id: str
    into: str | None = None
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def settings(self) -> AnySink:
        return self.file.settings.sinks[self.name]

    @property
    def counts_rows(self) -> bool:
        """Whether `outcome` says how many rows were written."""
        return self.settings.type in ("topic", "delta")

    @property
    def target(self) -> str:
        """The topic or path that is written to; for a console, its name."""
        sink = self.settings
        if isinstance(sink, TopicSink):
            return self.into or sink.topic
        if isinstance(sink, (DeltaSinkSettings, ParquetSink)):
            return self.file.resolve(self.into or sink.path)
        return "console"

    def prepare(self, frame: DataFrame, *, register: bool = True) -> DataFrame:
        """Return the frame as the sink takes it; PipelineError says what it cannot take.

        With `register` the schema of Avro values is in the store after this.
        """
        sink = self.settings
        if isinstance(sink, TopicSink):
            return self._encoded(frame, sink, register)
        if isinstance(sink, DeltaSinkSettings):
            self._require_columns(frame, sink.keys, "keys")
            self._require_columns(frame, sink.orders, "order_by")
            self._require_condition(frame, sink.delete_where, "delete_where")
        if isinstance(sink, (DeltaSinkSettings, ParquetSink)):
            self._require_columns(frame, sink.partition_by, "partition_by")
        return frame

    def table_problem(self, schema: StructType) -> Problem | None:
        """Return why rows of this schema cannot go into the Delta table that is there; None if they
        can.

        Asks what `DeltaSink.write` asks of every batch.
        """
        sink = self.settings
        if not isinstance(sink, DeltaSinkSettings):
            return None
        from deltalake.exceptions import DeltaError

        from moldau.spark.lake import LakeError

        try:
            self._delta(sink).require_fit(schema)
        except (LakeError, DeltaError, OSError, ValueError) as problem:
            return self.file.problem(str(problem), "sinks", self.name, "path")
        return None

    def start(
        self,
        frame: DataFrame,
        mode: OutputMode,
        checkpoint: str,
        trigger: dict[str, Any],
        start: Offsets | None = None,
        is_last: bool = False,
    ) -> StreamingQuery:
        """Return the running query. `start` is where it began, where that is known and not its own.

        `is_last` is for the windows that are open at the end of a bounded run.
        """
        sink = self.settings
        writer = frame.writeStream.queryName(self.name).outputMode(mode).trigger(**trigger)
        writer = writer.option("checkpointLocation", checkpoint)
        if isinstance(sink, ParquetSink) and is_last:
            return self._for_each_batch(writer, self._write_open_windows)
        if isinstance(sink, ParquetSink):
            return writer.format("parquet").partitionBy(*sink.partition_by).start(self.target)
        # Spark's own way with Python sinks starts two interpreters for every batch, and knows no
        # update mode.
        return self._for_each_batch(writer, self._write_batch(checkpoint, start))

    def write_once(self, frame: DataFrame) -> None:
        """All of a batch frame, for a replay."""
        sink = self.settings
        if isinstance(sink, ParquetSink):
            frame.write.mode("append").partitionBy(*sink.partition_by).parquet(self.target)
        elif isinstance(sink, DeltaSinkSettings):
            written = self._delta(sink).write(frame, 0)
            self.outcome.rows += written.rows
            self.outcome.skipped += int(written.skipped)
        elif isinstance(sink, TopicSink):
            self._send(frame, sink)
        else:
            self._print(frame, sink, "")

    def _for_each_batch(self, writer: DataStreamWriter, write: WriteBatch) -> StreamingQuery:
        def keeping_failure(batch: DataFrame, batch_id: int) -> None:
            try:
                write(batch, batch_id)
            except Exception as problem:
                self.outcome.failure = problem
                # Spark looks through the text of what is raised here with a pattern that takes a
                # frame of the stack for each character, so it gets a short one.
                raise BatchFailed(in_words(problem)[:500]) from None

        return writer.foreachBatch(keeping_failure).start()

    def _write_batch(self, checkpoint: str, start: Offsets | None) -> WriteBatch:
        sink = self.settings
        if isinstance(sink, TopicSink):
            return lambda batch, _: self._send(batch, sink)
        if isinstance(sink, ConsoleSink):
            return lambda batch, batch_id: self._print(batch, sink, f", batch {batch_id}")
        assert isinstance(sink, DeltaSinkSettings)
        from moldau.spark.lake import offsets_of_batch

        delta = self._delta(sink)

        def write(batch: DataFrame, batch_id: int) -> None:
            # Elsewhere only Spark reads it: then the table cannot say where to go on.
            is_local = "://" not in checkpoint
            offsets = offsets_of_batch(checkpoint, batch_id, start) if is_local else None
            written = delta.write(batch, batch_id, offsets)
            self.outcome.rows += written.rows
            self.outcome.skipped += int(written.skipped)

        return write

    def _write_open_windows(self, batch: DataFrame, _: int) -> None:
        # Among Spark's own files they would count as a batch, and the real one would be skipped.
        batch.write.mode("overwrite").parquet(self.target + OPEN_WINDOWS)

    def _delta(self, sink: DeltaSinkSettings) -> DeltaSink:
        from moldau.spark.lake import DeltaSink

        return DeltaSink(
            self.target,
            app_id=self.app_id,
            mode="upsert" if sink.keys else "complete" if sink.mode == "complete" else "append",
            keys=sink.keys,
            order_by=sink.orders,
            delete_where=sink.delete_where,
            partition_by=sink.partition_by,
            optimize_every=sink.optimize_every,
            storage_options=sink.storage_options,
        )

    def _send(self, batch: DataFrame, sink: TopicSink) -> None:
        from moldau.spark.lake.tasks import map_in_arrow
        from moldau.spark.sink.options import SinkOptions

        options = SinkOptions.parse(self._topic_options(sink), batch.schema)
        sent = map_in_arrow(batch, partial(send_records, options), "records bigint").collect()
        self.outcome.rows += sum(row["records"] for row in sent)

    def _print(self, batch: DataFrame, sink: ConsoleSink, which: str) -> None:
        # One row more than is shown: then `show` says that there are more.
        rows = batch.limit(sink.rows + 1).collect()
        if not rows:
            return
        show: Any = batch.sparkSession.createDataFrame(rows, batch.schema)._show_string
        sys.stdout.write(f"{self.name}{which}\n{show(sink.rows, False)}\n")
        sys.stdout.flush()

    def _topic_options(self, sink: TopicSink) -> dict[str, str]:
        bootstrap = {"kafka.bootstrap.servers": self.file.settings.bootstrap}
        return (
            bootstrap
            | {name: str(value) for name, value in sink.options.items()}
            | {"topic": self.target}
        )

    def _encoded(self, frame: DataFrame, sink: TopicSink, register: bool) -> DataFrame:
        self._require_columns(frame, sink.keys, "key")
        avro = self._avro(frame, sink, register) if sink.format == "avro" else None
        try:
            return encoded(frame, sink.format, key=sink.keys, avro=avro)
        except FormatError as problem:
            raise self._error(str(problem), "format") from None

    def _avro(self, frame: DataFrame, sink: TopicSink, register: bool) -> tuple[str, bytes, str]:
        """Return the schema for what is written, its header and the topic."""
        from moldau.client.errors import ClientError
        from moldau.schemas import pack_header

        setting = "schema_file" if sink.schema_file else "format"
        subject = sink.subject or f"{self.target}-value"
        try:
            schema = self._schema(frame, sink)
            if register:
                schema_id = self.store().register(subject, json.loads(schema)).id
            else:
                schema_id = 0
                refused = self.store().problem(subject, json.loads(schema))
                if refused:
                    raise FormatError(f"the schema store would refuse this schema: {refused}")
        except (ClientError, ValueError) as problem:
            raise self._error(str(problem), setting) from None
        return schema, pack_header(schema_id), self.target

    def _schema(self, frame: DataFrame, sink: TopicSink) -> str:
        if sink.schema_file is None:
            return avro_columns(frame, self.name)
        path = Path(self.file.path).resolve().parent / sink.schema_file
        try:
            return path.read_text("utf-8")
        except OSError as problem:
            raise FormatError(f"{path} cannot be read: {problem.strerror}") from None

    def _require_columns(self, frame: DataFrame, wanted: list[str], setting: str) -> None:
        from moldau.spark.pipeline.errors import nearest

        for column in wanted:
            if column not in frame.columns:
                hint = nearest(column, frame.columns)
                raise self._error(f"{self.settings.from_} has no column {column!r}{hint}", setting)

    def _require_condition(self, frame: DataFrame, condition: str, setting: str) -> None:
        from pyspark.errors import PySparkException

        try:
            if condition:
                frame.where(condition)
        except PySparkException as problem:
            raise self._error(in_words(problem), setting) from None

    def _error(self, message: str, *setting: str) -> PipelineError:
        return PipelineError(self.file.problem(message, "sinks", self.name, *setting))
