"""Analysis of a frame by Spark's plan: which sources it reads, and how it may be written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moldau.spark.formats.source import OPTION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATEFUL = frozenset(
    (
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
        "TransformWithState",
        "TransformWithStateInPySpark",
        "GlobalLimit",
    )
)


def sources_of(frame: DataFrame) -> list[str]:
    """Return the names of the sources that a frame reads, in no order, each once."""
    found: dict[str, None] = {}
    for node in _nodes(_analysed(frame)):
        name = source_of(node)
        if name is not None:
            found[name] = None
    return list(found)


def source_of(node: Any) -> str | None:
    """Return the name of the source that a plan's node reads, of a stream or a batch; None of
    others."""
    kind = node.getClass().getSimpleName()
    if kind not in ("StreamingRelationV2", "DataSourceV2Relation"):
        return None
    options = node.extraOptions() if kind == "StreamingRelationV2" else node.options()
    text = options.get(OPTION)
    return None if text is None else str(json.loads(text)["source"])


def is_stateful(frame: DataFrame) -> bool:
    """Return whether rows depend on more than one record: such a query has state in
    its checkpoint."""
    for node in _nodes(_analysed(frame)):
        name = node.getClass().getSimpleName()
        if name in _STATEFUL and node.isStreaming():
            return True
        if name == "Join" and node.left().isStreaming() and node.right().isStreaming():
            return True
    return False


def aggregates(frame: DataFrame) -> bool:
    return any(
        node.getClass().getSimpleName() == "Aggregate" and node.isStreaming()
        for node in _nodes(_analysed(frame))
    )


def mode_problem(frame: DataFrame, output_mode: str) -> Exception | None:
    """Return why Spark would not run this query in this output mode; None if it would."""
    from pyspark.errors import PySparkException

    jvm: Any = frame.sparkSession.sparkContext._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[output_mode]
    catalyst = jvm.org.apache.spark.sql.catalyst.analysis
    try:
        catalyst.UnsupportedOperationChecker.checkForStreaming(_analysed(frame), mode())
    except PySparkException as problem:
        return problem
    return None


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))
