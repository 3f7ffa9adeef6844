"""Sinks: a streaming query for each, or a single write for a replay."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from moldau.spark.formats.encoding import (
    SCHEMA_TYPES,
    Written,
    columns_as_proto,
    columns_as_schema,
    encoded,
    require_schema_has_columns,
)
from moldau.spark.formats.errors import FormatError
from moldau.spark.formats.spec import Registered
from moldau.spark.lake.errors import LakeError
from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.file.settings import (
    AnySink,
    ConsoleSink,
    DeltaSinkSettings,
    IcebergSinkSettings,
    LakeSinkSettings,
    ParquetSink,
    TopicSink,
)
from moldau.spark.pipeline.plan.changes import with_defaults
from moldau.spark.pipeline.plan.lake_sinks import lake_sink, partition_columns, schema_in_table
from moldau.spark.pipeline.plan.modes import OutputMode
from moldau.spark.pipeline.reasons import in_words
from moldau.spark.sink.batches import send_frame
from moldau.spark.sink.committers import Committers
from moldau.spark.sink.staged import BatchName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from moldau.schemas.catalog import SchemaCatalog
    from moldau.spark.lake import Offsets
    from moldau.spark.pipeline.plan.lake_sinks import LakeSink

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


@dataclass
class Writer:
    """One sink of a file. `app_id` names it in the log of a lake table."""

    file: PipelineFile
    name: str
    store: Callable[[], SchemaCatalog]
    app_id: str
    into: str | None = None
    outcome: Outcome = field(default_factory=Outcome)
    committers: Committers = field(default_factory=Committers)
    # The columns of the rows, once they are known.
    columns: tuple[str, ...] = ()

    @property
    def settings(self) -> AnySink:
        return self.file.settings.sinks[self.name]

    def continue_from(self, other: Writer) -> None:
        """Go on as the same writer, with another plan."""
        self.outcome, self.committers = other.outcome, other.committers

    @property
    def counts_rows(self) -> bool:
        """Whether `outcome` says how many rows were written."""
        return self.settings.type in ("topic", "delta", "iceberg")

    @property
    def target(self) -> str:
        """The topic, path or table that is written to; for a console, its name."""
        sink = self.settings
        if isinstance(sink, TopicSink):
            return self.into or sink.topic
        if isinstance(sink, IcebergSinkSettings):
            return self.into or sink.table
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
        if isinstance(sink, LakeSinkSettings):
            self.columns = tuple(frame.columns)
            sink = with_defaults(sink, self.columns)
            self._require_columns(frame, sink.keys, "keys")
            self._require_columns(frame, sink.orders, "order_by")
            self._require_condition(frame, sink.delete_where, "delete_where")
            self._require_columns(frame, [sink.valid_from] if sink.valid_from else [], "valid_from")
            if sink.merge_where:
                pairs = self._pairs(frame, sink)
                self._require_condition(pairs, sink.merge_where, "merge_where")
            if sink.scd == 2 and not sink.orders:
                raise self._error("scd = 2 needs 'order_by', the order of a row's versions", "scd")
        if isinstance(sink, (LakeSinkSettings, ParquetSink)):
            try:
                columns = partition_columns(sink)
            except LakeError as problem:
                raise self._error(str(problem), "partition_by") from None
            self._require_columns(frame, columns, "partition_by")
        return frame

    def table_problem(self, schema: StructType) -> Problem | None:
        """Return why rows of this schema cannot go into the lake table that is there; None if they
        can.

        Asks what the sink's `write` asks of every batch.
        """
        sink = self.settings
        if not isinstance(sink, LakeSinkSettings):
            return None
        from deltalake.exceptions import DeltaError

        try:
            self._lake(sink).require_fit(schema)
        except (LakeError, DeltaError, OSError, ValueError) as problem:
            setting = "path" if isinstance(sink, DeltaSinkSettings) else "table"
            return self.file.problem(str(problem), "sinks", self.name, setting)
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
        elif isinstance(sink, LakeSinkSettings):
            written = self._lake(sink).write(frame, 0)
            self.outcome.rows += written.rows
            self.outcome.skipped += int(written.skipped)
        elif isinstance(sink, TopicSink):
            single = uuid4().hex
            self._send(frame, sink, BatchName(single, single, 0, is_single=True))
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
        assert isinstance(sink, LakeSinkSettings)
        from moldau.spark.lake import offsets_of_batch

        lake = self._lake(sink)

        def write(batch: DataFrame, batch_id: int) -> None:
            # Elsewhere only Spark reads it: then the table cannot say where to go on.
            is_local = "://" not in checkpoint
            offsets = offsets_of_batch(checkpoint, batch_id, start) if is_local else None
            written = lake.write(batch, batch_id, offsets)
            self.outcome.rows += written.rows
            self.outcome.skipped += int(written.skipped)

        return write

    def _write_open_windows(self, batch: DataFrame, _: int) -> None:
        # Among Spark's own files they would count as a batch, and the real one would be skipped.
        batch.write.mode("overwrite").parquet(self.target + OPEN_WINDOWS)

    def _lake(self, sink: LakeSinkSettings) -> LakeSink:
        return lake_sink(self.file, with_defaults(sink, self.columns), self.target, self.app_id)

    def _send(self, frame: DataFrame, sink: TopicSink, batch: BatchName | None = None) -> None:
        from moldau.spark.sink.options import SinkOptions

        options = SinkOptions.parse(self._topic_options(sink), frame.schema)
        self.outcome.rows += send_frame(frame, options, self.committers, batch)

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
            | self.file.client_options()
            | {name: str(value) for name, value in sink.options.items()}
            | {"topic": self.target}
        )

    def _encoded(self, frame: DataFrame, sink: TopicSink, register: bool) -> DataFrame:
        self._require_columns(frame, sink.keys, "key")
        registered = self._registered(frame, sink, register) if sink.format in Registered else None
        try:
            return encoded(frame, sink.format, key=sink.keys, registered=registered)
        except FormatError as problem:
            raise self._error(str(problem), "format") from None

    def _registered(self, frame: DataFrame, sink: TopicSink, register: bool) -> Written:
        """Return the schema for what is written, its header and the topic."""
        from moldau.client.errors import ClientError
        from moldau.schemas import pack_header

        setting = "schema_file" if sink.schema_file else "format"
        subject = sink.subject or f"{self.target}-value"
        kind = SCHEMA_TYPES[sink.format]
        try:
            schema = self._schema(frame, sink, subject)
            if register:
                schema_id = self.store().register(subject, schema, kind).id
            else:
                schema_id = 0
                refused = self.store().problem(subject, schema, kind)
                if refused:
                    raise FormatError(f"the schema registry would reject this schema: {refused}")
        except (ClientError, ValueError) as problem:
            raise self._error(str(problem), setting) from None
        return schema, pack_header(schema_id), self.target

    def _schema(self, frame: DataFrame, sink: TopicSink, subject: str) -> str:
        if sink.schema_file is None:
            if sink.format != "protobuf":
                return columns_as_schema(frame, sink.format, self.name)
            return columns_as_proto(frame, self.name, self.store().versions(subject))
        path = Path(self.file.path).resolve().parent / sink.schema_file
        try:
            text = path.read_text("utf-8")
        except OSError as problem:
            raise FormatError(f"{path} cannot be read: {problem.strerror}") from None
        require_schema_has_columns(frame, sink.format, text)
        return text

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

    def _pairs(self, frame: DataFrame, sink: LakeSinkSettings) -> DataFrame:
        """Return a frame of two rows each, as the condition of a merge sees them."""
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        row = [f.col(f"`{name}`") for name in frame.columns]
        table = schema_in_table(self.file, sink, self.target)
        # What only the table has may decide as well.
        more = [
            f.lit(None).cast(field.dataType).alias(field.name)
            for field in (() if table is None else from_arrow_schema(table))
            if field.name not in frame.columns
        ]
        return frame.select(f.struct(*row).alias("source"), f.struct(*row, *more).alias("target"))

    def _error(self, message: str, *setting: str) -> PipelineError:
        return PipelineError(self.file.problem(message, "sinks", self.name, *setting))
