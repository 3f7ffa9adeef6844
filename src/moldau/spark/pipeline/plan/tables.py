"""Tables: the SQL of a file, analysed in its order, with the steps in Python between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moldau.spark.pipeline.errors import PipelineError, Problem, nearest
from moldau.spark.pipeline.file.file import PipelineFile, part_of
from moldau.spark.pipeline.file.settings import StepSettings
from moldau.spark.pipeline.plan.steps import Steps
from moldau.spark.pipeline.reasons import in_words, sql_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_UNKNOWN_COLUMN = "UNRESOLVED_COLUMN"


class Tables:
    """The views of a session: sources first, then each table or step, which sees those above."""

    def __init__(self, file: PipelineFile, spark: SparkSession) -> None:
        self._file = file
        self._spark = spark
        self._steps = Steps(file)

    def build(self, sources: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Return all tables and steps over these sources; PipelineError has every problem, with
        its line."""
        from pyspark.errors import PySparkException

        for name, frame in sources.items():
            frame.createOrReplaceTempView(name)
        in_order = self._file.in_order()
        for name, _ in in_order:
            self._spark.catalog.dropTempView(name)
        built = dict(sources)
        problems: list[Problem] = []
        failed: set[str] = set()
        for name, table in in_order:
            if isinstance(table, StepSettings):
                try:
                    built[name] = self._steps.frame(name, table, built)
                except PipelineError as refused:
                    if not failed.intersection(table.inputs):
                        problems += refused.problems
                    failed.add(name)
                else:
                    built[name].createOrReplaceTempView(name)
                continue
            try:
                built[name] = self._spark.sql(table.sql)
            except PySparkException as refused:
                # What is only about something that could not be made itself is no news.
                if _unknown_table(refused) not in failed:
                    problems.append(self._problem(name, table.sql, refused, built))
                failed.add(name)
            else:
                built[name].createOrReplaceTempView(name)
        if problems:
            raise PipelineError(*problems)
        return built

    def _problem(
        self, name: str, sql: str, problem: Any, built: Mapping[str, DataFrame]
    ) -> Problem:
        path = ("tables", name, "sql")
        place = sql_place(problem)
        position = 0
        if place is not None:
            lines = sql.splitlines(keepends=True)
            position = sum(map(len, lines[: place.line - 1])) + place.column
        message = self._in_words(name, problem, built)
        line = self._file.places.line_in(path, position)
        return Problem(message, str(self._file.path), line, part_of(path))

    def _in_words(self, name: str, problem: Any, built: Mapping[str, DataFrame]) -> str:
        condition = str(problem.getCondition() or "")
        parameters = problem.getMessageParameters() or {}
        if condition == _UNKNOWN_TABLE:
            wanted = _unknown_table(problem)
            return self._file.missing(name, wanted, built)
        if condition.startswith(_UNKNOWN_COLUMN):
            wanted = parameters.get("objectName", "").replace("`", "")
            known = parameters.get("proposal", "").replace("`", "").split(", ")
            return f"there is no column {wanted!r}{nearest(wanted, filter(None, known))}"
        return in_words(problem)


def place_of_failure(file: PipelineFile, problem: BaseException) -> tuple[int, str] | None:
    """Return the line and part where a running query failed in the SQL of a table, if that is
    known."""
    place = sql_place(problem)
    if place is None or not place.fragment:
        return None
    for name, table in file.settings.tables.items():
        lines = table.sql.splitlines(keepends=True)
        if place.line <= len(lines) and place.fragment in lines[place.line - 1].strip():
            position = sum(map(len, lines[: place.line - 1]))
            return file.places.line_in(("tables", name, "sql"), position), f"table {name}"
    return None


def _unknown_table(problem: Any) -> str:
    """Return the table that Spark did not find; nothing if something else is wrong."""
    if problem.getCondition() != _UNKNOWN_TABLE:
        return ""
    return str((problem.getMessageParameters() or {}).get("relationName", "")).replace("`", "")
