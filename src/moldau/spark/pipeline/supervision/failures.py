"""Failures of a pipeline: in one sentence, with the record, and whether a restart may help."""

from __future__ import annotations

import re
import time

from moldau.client.pipelines.status import LastError, RecordPlace
from moldau.spark.pipeline.errors import PipelineError

_RECORD = re.compile(r"\bat ([\w.-]+)-(\d+) offset (\d+)\b")
_PART = re.compile(r"^table |^step ")
# Errors about records, schemas and settings: the next start meets the same ones.
_FINAL = re.compile(
    r"moldau\.[\w.]+\.(BadRecord|NewFields|DataLoss|OptionError|FormatError|SchemaConflict"
    r"|OffsetConflict)\b"
)


def last_error(problem: BaseException) -> LastError:
    """Return what the status says of a failure."""
    at_ms = int(time.time() * 1000)
    if isinstance(problem, PipelineError) and problem.problems:
        first = problem.problems[0]
        return LastError(
            message=first.message,
            part=first.part,
            line=first.line,
            record=record_of(first.message),
            at_ms=at_ms,
        )
    message = " ".join(str(problem).split()) or type(problem).__name__
    return LastError(message=message, record=record_of(message), at_ms=at_ms)


def record_of(message: str) -> RecordPlace | None:
    """Return the record that an error names."""
    found = _RECORD.search(message)
    if found is None:
        return None
    return RecordPlace(topic=found[1], partition=int(found[2]), offset=int(found[3]))


def may_pass(problem: BaseException) -> bool:
    """Return whether another start may go well. What fails in SQL fails again."""
    if not isinstance(problem, PipelineError):
        return True
    if any(_PART.match(each.part) for each in problem.problems):
        return False
    return _FINAL.search(problem.detail) is None
