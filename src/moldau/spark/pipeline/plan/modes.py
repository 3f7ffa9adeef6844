"""The modes of a sink: which one its settings and its table allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from moldau.spark.pipeline.file.settings import AnySink, ConsoleSink, LakeSinkSettings, TopicSink
from moldau.spark.pipeline.plan.analysis import aggregates, mode_problem
from moldau.spark.pipeline.reasons import in_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OutputMode = Literal["append", "update", "complete"]

_WITHOUT_WATERMARK = (
    "the rows of this table never become final, because it aggregates "
    "without a watermark, and append writes only final rows. Set a "
    "'watermark' on the source and group by a window of its column"
)
_LAKE = ", or give 'keys' to replace rows by, or mode = \"complete\""
_REMEDY = {
    "delta": _LAKE,
    "iceberg": _LAKE,
    "topic": ', or mode = "update" to send every change',
    "parquet": ", or use a Delta table",
    "console": ', or mode = "update"',
}


def output_mode(sink: AnySink, frame: DataFrame) -> tuple[OutputMode, str]:
    """Spark's output mode for a sink, or why there is none that would do."""
    wanted = _candidates(sink, frame)
    problem: Exception | None = None
    for mode in wanted:
        refused = mode_problem(frame, mode)
        if refused is None:
            return mode, ""
        problem = problem or refused
    assert problem is not None
    text = in_words(problem)
    if wanted[0] == "append" and "watermark" in text:
        return "append", _WITHOUT_WATERMARK + _REMEDY[sink.type]
    if wanted[0] == "complete" and "aggregat" in text:
        return "complete", "complete is for tables that aggregate; this one grows without limit"
    return wanted[0], text


def _candidates(sink: AnySink, frame: DataFrame) -> list[OutputMode]:
    if isinstance(sink, LakeSinkSettings):
        if sink.mode == "complete":
            return ["complete"]
        # Outer joins of streams only append; as long as rows have keys, that does as well.
        return ["update", "append"] if sink.keys else ["append"]
    if sink.mode is not None:
        return [sink.mode]  # type: ignore[list-item]
    if isinstance(sink, TopicSink):
        return ["append", "update"]
    if isinstance(sink, ConsoleSink) and aggregates(frame):
        return ["update", "append"]
    return ["append"]
