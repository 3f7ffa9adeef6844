"""The records of a batch that failed in SQL: the one that caused it is among them."""

from __future__ import annotations

from dataclasses import replace

from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.run.checkpoint import Checkpoint

# More ranges than this say nothing to a reader.
MOST_RANGES = 5


def with_records(problem: PipelineError, checkpoint: Checkpoint, sink: str) -> PipelineError:
    """Return the error of a table or step with the records of the batch that met it."""
    if not any(each.part.startswith(("table ", "step ")) for each in problem.problems):
        return problem
    records = records_of_batch(checkpoint, sink)
    if not records:
        return problem

    def told(each: Problem) -> Problem:
        return replace(each, message=f"{each.message}{records}")

    return PipelineError(*map(told, problem.problems), detail=problem.detail)


def records_of_batch(checkpoint: Checkpoint, sink: str) -> str:
    """`, at orders-0 offset 17`, or the ranges of a batch that was planned and not finished."""
    from moldau.spark.lake import LakeError, offsets_of_batch

    batch = checkpoint.last_batch(sink) if checkpoint.is_local else None
    if batch is None or batch == checkpoint.last_committed(sink):
        return ""
    try:
        offsets = offsets_of_batch(checkpoint.of_sink(sink), batch)
    except LakeError:
        return ""
    # Where the first batch begins is not written down: at the start of the topic, as a rule.
    ranges = [(t, p, max(first, 0), end) for t, p, (first, end) in offsets if max(first, 0) < end]
    if sum(end - first for _, _, first, end in ranges) == 1:
        ((topic, partition, first, _),) = ranges
        return f", at {topic}-{partition} offset {first}"
    if not 0 < len(ranges) <= MOST_RANGES:
        return ""
    named = ", ".join(f"{topic}-{part} {first} to {end - 1}" for topic, part, first, end in ranges)
    return f", in a batch of the offsets {named}"
