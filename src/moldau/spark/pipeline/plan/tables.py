"""Tables: the SQL of a file, analysed in its order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moldau.spark.pipeline.errors import PipelineError, Problem, nearest
from moldau.spark.pipeline.file.file import PipelineFile, part_of
from moldau.spark.pipeline.reasons import in_words, sql_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_UNKNOWN_COLUMN = "UNRESOLVED_COLUMN"


class Tables:
    """The views of a session: sources first, then each table, which sees those above it."""

    def __init__(self, file: PipelineFile, spark: SparkSession) -> None:
        self._file = file
        self._spark = spark

    def build(self, sources: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Return all tables over these sources; PipelineError has every problem, with its line."""
        from pyspark.errors import PySparkException

        for name, frame in sources.items():
            frame.createOrReplaceTempView(name)
        for name in self._file.settings.tables:
            self._spark.catalog.dropTempView(name)
        built = dict(sources)
        problems: list[Problem] = []
        failed: set[str] = set()
        for name, table in self._file.settings.tables.items():
            try:
                built[name] = self._spark.sql(table.sql)
            except PySparkException as refused:
                problem = self._problem(name, table.sql, refused, built)
                if not _follows(problem, failed):
                    problems.append(problem)
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
            wanted = parameters.get("relationName", "").replace("`", "")
            below = list(self._file.settings.tables)
            if wanted == name:
                return f"{name} reads itself"
            if wanted in below:
                return f"table {wanted} is defined below; a table can only read tables above it"
            return f"there is no source or table {wanted!r}{nearest(wanted, built)}"
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


def _follows(problem: Problem, failed: set[str]) -> bool:
    """Return whether this is only about a table that could not be made itself."""
    return any(f"table {name} stands below" in problem.message for name in failed) or any(
        f"no source or table {name!r}" in problem.message for name in failed
    )
