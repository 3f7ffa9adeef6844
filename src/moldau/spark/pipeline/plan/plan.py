"""The plan of a file in a session: its queries and its problems.

Building needs Spark, and a schema store for Avro without a file; no topic is looked at, and tables
only by `table_problems`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.spark.formats.spec import Sharing
from moldau.spark.names import RECORD_ORDER
from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.file.settings import AnySink, LakeSinkSettings
from moldau.spark.pipeline.plan.analysis import is_stateful, sources_of
from moldau.spark.pipeline.plan.changes import with_defaults
from moldau.spark.pipeline.plan.last_reading import LastReading
from moldau.spark.pipeline.plan.modes import OutputMode, output_mode
from moldau.spark.pipeline.plan.record_order import (
    has_batch_order,
    has_record_order,
    with_record_order,
)
from moldau.spark.pipeline.plan.sinks import Writer
from moldau.spark.pipeline.plan.sources import Reading, Sources
from moldau.spark.pipeline.plan.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

    from moldau.schemas.catalog import SchemaCatalog

_NO_ORDER = (
    "nothing says which of two rows with the same keys is newer, because the rows of this table "
    "neither come from one record each nor are totals by these keys: give 'order_by', columns "
    "whose greater values are newer"
)


@dataclass(frozen=True)
class PlannedSink:
    """A sink with what its query will be like.

    `sends` are the sources whose dead letters it sends; each source has one sink that does. Rows of
    one that `is_ordered` are written with the order of their records.
    """

    writer: Writer
    mode: OutputMode
    sources: tuple[str, ...]
    sends: tuple[str, ...]
    is_stateful: bool
    is_ordered: bool
    schema: StructType


class Plan:
    """The sinks of a pipeline over one session; `run` names the run in which they share reads.

    `last` is how sources were read that the run goes on with.
    """

    def __init__(
        self,
        file: PipelineFile,
        spark: SparkSession,
        store: Callable[[], SchemaCatalog],
        run: str = "",
        last: Mapping[str, LastReading] | None = None,
    ) -> None:
        from moldau.spark.formats.source import ValueSource
        from moldau.spark.runtime.threads import active

        # Spark looks in the active session for one of the same name, which may be another plan's.
        with active(spark):
            spark.dataSource.register(ValueSource)
        self.run = run
        self._file = file
        self._store = store
        self._sources = Sources(file, spark, store, last or {})
        self._tables = Tables(file, spark)
        self.sinks = self._planned()

    def table_problems(self) -> list[Problem]:
        """Find what keeps rows out of existing tables. A replay may well go to others."""
        found = [sink.writer.table_problem(sink.schema) for sink in self.sinks.values()]
        return [problem for problem in found if problem is not None]

    def columns(self, source: str) -> StructType:
        """Return the columns of a source's values."""
        return self._sources.columns(source)

    def readings(self) -> Mapping[str, LastReading]:
        """Return how sources with registered schemas are read, for plans that go on with them."""
        return self._sources.readings

    def read_as(self) -> dict[str, Any]:
        """Return the same as the checkpoint has it."""
        return {name: each.to_json() for name, each in self.readings().items()}

    def frame(self, sink: PlannedSink, starts: Mapping[str, str]) -> DataFrame:
        """Return the frame that the query of a sink writes; `starts` are offsets to begin at
        instead.
        """
        readings = {
            source: Reading(
                sends=source in sink.sends,
                start=starts.get(source),
                is_ordered=sink.is_ordered,
                sharing=self._sharing(source, sink),
            )
            for source in self._file.settings.sources
        }
        return self._written(sink, sink.writer, readings)

    def bounded_frame(
        self, sink: PlannedSink, writer: Writer, from_ms: int | None, until_ms: int | None
    ) -> tuple[DataFrame, dict[str, Observation]]:
        """Return the same as a batch: all windows are there, and nothing is late.

        Also what counts the records of each source that the sink reads and that has a format.
        """
        readings = {
            source: Reading("batch", source in sink.sends, None, from_ms, until_ms, sink.is_ordered)
            for source in self._file.settings.sources
        }
        self._sources.forget_batches()
        frame = self._written(sink, writer, readings)
        counted = self._sources.observations
        return frame, {name: counted[name] for name in sink.sources if name in counted}

    def _sharing(self, source: str, sink: PlannedSink) -> Sharing | None:
        readers = [each for each in self.sinks.values() if source in each.sources]
        if not self.run or len(readers) < 2:
            return None
        is_ordered = any(each.is_ordered for each in readers)
        return Sharing(self.run, sink.writer.name, len(readers), is_ordered)

    def _written(
        self, sink: PlannedSink, writer: Writer, readings: Mapping[str, Reading]
    ) -> DataFrame:
        frame = writer.prepare(self._build(readings)[writer.settings.from_])
        return with_record_order(frame) if sink.is_ordered else frame

    def _build(self, readings: Mapping[str, Reading]) -> dict[str, DataFrame]:
        frames: dict[str, DataFrame] = {}
        problems: list[Problem] = []
        for name, reading in readings.items():
            try:
                # Nobody's SQL sees the order: `SELECT *` has the columns of the value.
                frames[name] = self._sources.frame(name, reading).drop(RECORD_ORDER)
            except PipelineError as problem:
                problems += problem.problems
        if problems:
            raise PipelineError(*problems)
        return self._tables.build(frames)

    def _planned(self) -> dict[str, PlannedSink]:
        settings = self._file.settings
        built = self._build({name: Reading() for name in settings.sources})
        found: dict[str, PlannedSink] = {}
        problems: list[Problem] = []
        taken: set[str] = set()
        for name, sink in settings.sinks.items():
            frame = built[sink.from_]
            app_id = f"{settings.name}/{name}"
            writer = Writer(self._file, name, self._store, app_id)
            try:
                writer.prepare(frame, register=False)
            except PipelineError as problem:
                problems += problem.problems
                continue
            mode, refused = output_mode(sink, frame)
            if refused:
                setting = "mode" if sink.mode else "from"
                problems.append(self._file.problem(refused, "sinks", name, setting))
                continue
            is_ordered, refused = _order(sink, frame)
            if refused:
                problems.append(self._file.problem(refused, "sinks", name, "keys"))
                continue
            sources = tuple(sources_of(frame))
            sends = tuple(each for each in sources if each not in taken)
            taken.update(sources)
            found[name] = PlannedSink(
                writer, mode, sources, sends, is_stateful(frame), is_ordered, frame.schema
            )
        if problems:
            raise PipelineError(*problems)
        return found


def _order(sink: AnySink, frame: DataFrame) -> tuple[bool, str]:
    """Return whether a sink takes the order of records, or why it has no order though
    it needs one."""
    if not isinstance(sink, LakeSinkSettings) or not sink.keys:
        return False, ""
    if has_record_order(frame):
        return True, ""
    orders = with_defaults(sink, frame.columns).orders
    is_known = bool(orders) or has_batch_order(frame, sink.keys)
    return False, "" if is_known else _NO_ORDER
