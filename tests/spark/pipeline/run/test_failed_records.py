"""Failed records: which ones a batch had that failed in SQL, as its checkpoint says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moldau.spark.pipeline import PipelineError, Problem
from moldau.spark.pipeline.run.checkpoint import Checkpoint
from moldau.spark.pipeline.run.failed_records import records_of_batch, with_records
from moldau.spark.pipeline.supervision.failures import last_error

Ends = dict[str, dict[str, int]]


def checkpoint(folder: Path, *batches: Ends, finished: int) -> Checkpoint:
    """A checkpoint of the sink `raw`, as Spark writes it."""
    for kind, count in (("offsets", len(batches)), ("commits", finished)):
        (folder / "sinks/raw" / kind).mkdir(parents=True)
        for number in range(count):
            text = f"v1\n{{}}\n{json.dumps(batches[number])}\n"
            (folder / "sinks/raw" / kind / str(number)).write_text(text)
    return Checkpoint(str(folder), "test")


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ({"orders": {"0": 5, "1": 8}}, ", at orders-1 offset 7"),
        (
            {"orders": {"0": 6, "1": 9}},
            ", in a batch of the offsets orders-0 5 to 5, orders-1 7 to 8",
        ),
        ({"orders": {str(number): 99 for number in range(9)}}, ""),
    ],
)
def test_the_records_of_the_batch_that_failed_are_named(
    tmp_path: Path, last: Ends, said: str
) -> None:
    before = {"orders": {"0": 5, "1": 7}}
    assert records_of_batch(checkpoint(tmp_path, before, last, finished=1), "raw") == said


def test_of_a_batch_that_is_finished_nothing_is_said(tmp_path: Path) -> None:
    done = checkpoint(tmp_path, {"orders": {"0": 5}}, finished=1)
    assert records_of_batch(done, "raw") == ""
    assert records_of_batch(Checkpoint(str(tmp_path / "other"), "test"), "raw") == ""


def test_an_error_in_sql_gets_the_record_that_caused_it(tmp_path: Path) -> None:
    failed = checkpoint(tmp_path, {"orders": {"0": 1}}, finished=0)
    problem = PipelineError(Problem("Division by zero", part="table shares"), detail="more")
    told = with_records(problem, failed, "raw")
    assert str(told) == "table shares: Division by zero, at orders-0 offset 0"
    assert told.detail == "more"
    assert str(last_error(told).record) == "orders-0 offset 0"
    elsewhere = PipelineError(Problem("no broker answered", part="sink raw"))
    assert with_records(elsewhere, failed, "raw") is elsewhere
