"""Evolution while a pipeline runs: a newer version of a schema, met by a batch.

The source refuses the batch before anything of it is read to be written. What happens then is the
setting `evolution`:

add     the pipeline is planned anew with the latest version, and the query starts again from its
        checkpoint: the same batch, with the new columns. That is done only if every column stays,
        in the same type or a wider one, and if the tables can take them; otherwise it stops.
pause   the query stays stopped, and the others run on.
fail    the pipeline stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from moldau.spark.errors import log
from moldau.spark.formats.column_changes import Changes
from moldau.spark.formats.errors import NewFields
from moldau.spark.formats.spec import Registered
from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.plan.last_reading import LastReading, refused_changes

if TYPE_CHECKING:
    from moldau.spark.pipeline.plan.plan import Plan, PlannedSink

_NAME = f"{NewFields.__module__}.{NewFields.__qualname__}"


def is_newer_schema(detail: str) -> bool:
    """Return whether a query has failed because of a newer schema: Spark keeps only the text."""
    return _NAME in detail


class Evolution:
    """Decides what becomes of a query that has met a newer schema.

    `replan` reads it; it is told how the other sources are read, which keep their columns too.
    """

    def __init__(
        self, file: PipelineFile, replan: Callable[[Mapping[str, LastReading]], Plan]
    ) -> None:
        self._file = file
        self._replan = replan

    def plan_after(self, plan: Plan, sink: str, problem: PipelineError) -> Plan | None:
        """Return the plan with which the sink's query goes on; None if it is to pause.

        PipelineError if the pipeline has to stop: `problem`, or why the schema cannot be taken up.
        """
        source = self._source_of(plan.sinks[sink], str(problem))
        settings = self._file.settings.sources[source]
        policy = settings.evolution or self._file.settings.general.evolution
        if policy == "pause":
            log.warning("sink %s pauses, and its batch is not written: %s", sink, problem)
            return None
        if policy == "fail" or settings.schema or settings.schema_file:
            # Who gives a schema wants that one, and nothing that it lacks may be dropped.
            raise problem
        others = {name: each for name, each in plan.readings().items() if name != source}
        renewed = self._renewed(others, problem)
        changes = refused_changes(
            plan.columns(source), renewed.columns(source), settings.may_change
        )
        if changes.has_losses:
            raise self._incompatible(source, changes, problem)
        refused = renewed.table_problems()
        if refused:
            raise PipelineError(*refused, detail=problem.detail)
        log.warning(
            "source %s: a batch of sink %s has records with a newer schema, so it is planned "
            "again before any of it is written%s",
            source,
            sink,
            f" ({changes})" if changes else "",
        )
        for name, planned in renewed.sinks.items():
            planned.writer.continue_from(plan.sinks[name].writer)
        return renewed

    def _renewed(self, others: Mapping[str, LastReading], problem: PipelineError) -> Plan:
        try:
            return self._replan(others)
        except PipelineError as refused:
            # With the detail of the first, by which others know that a restart does not help.
            raise PipelineError(*refused.problems, detail=problem.detail) from None

    def _source_of(self, sink: PlannedSink, message: str) -> str:
        """Return the source whose record it was."""
        sources = self._file.settings.sources
        registered = [name for name in sink.sources if sources[name].value_format in Registered]
        for name in registered:
            if any(f" at {topic}-" in message for topic in sources[name].topics):
                return name
        return registered[0]

    def _incompatible(self, source: str, changes: Changes, problem: PipelineError) -> PipelineError:
        message = (
            f"the latest schema is not compatible with the running one ({changes}), so nothing was "
            "written. Register a version that keeps the existing columns and their types, or give "
            "a 'schema_file' that does; to go on without them all the same, list them in "
            f"'may_change' and start the pipeline again; {_first(problem)}"
        )
        return PipelineError(self._file.problem(message, "sources", source), detail=problem.detail)


def _first(problem: PipelineError) -> str:
    message: Problem = problem.problems[0]
    return message.message.partition(". ")[0]
