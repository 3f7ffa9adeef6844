"""Python processes of Spark that are killed under a running pipeline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark.pipeline import PipelineError
from moldau.spark.pipeline.run.running import Running
from moldau.testing import Broker
from tests.spark.pipeline.files import RAW, SOURCE, event, load, send, table, values
from tests.spark.processes import SOURCE_RUNNER, WORKERS, below, kill
from tests.spark.topics import fresh_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

WITHIN_S = 120.0
COPY = """
[sinks.copy]
from = "events"
type = "topic"
topic = "{topic}-copy"
"""


def follow(running: Running, until: Callable[[], bool]) -> None:
    """What `wait` does, until it is so."""
    deadline = time.monotonic() + WITHIN_S
    while not until():
        assert time.monotonic() < deadline
        running._follow(None)
        for name in list(running.queries):
            running._is_restarted(name)
        time.sleep(0.05)


def test_queries_that_lost_a_process_go_on_and_one_that_loses_it_for_ever_says_so(
    spark: SparkSession,
    moldau_session_broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    lake = tmp_path / "lake" / "raw"
    pipeline = load(tmp_path, broker, topic, SOURCE, RAW, COPY)

    def are_written(count: int) -> bool:
        return all(each.rows >= count for each in running.progress.values())

    with pipeline.start(spark) as running:
        for turn, words in enumerate((SOURCE_RUNNER, WORKERS, SOURCE_RUNNER)):
            send(broker, topic, [event(turn, number=turn)])
            follow(running, lambda: are_written(turn + 1))  # noqa: B023
            assert kill(*below(os.getpid(), words))
        assert "offsets has ended: it was killed, or ran out of memory" in caplog.text
        send(broker, topic, [event(3, number=3)])
        follow(running, lambda: are_written(4))
        monkeypatch.setattr("moldau.spark.pipeline.run.running.RESTARTS", 0)
        assert kill(*below(os.getpid(), SOURCE_RUNNER))
        with pytest.raises(PipelineError, match=r"Python process .* has ended: it was killed"):
            running.wait()
    assert sorted(row["number"] for row in table(lake)) == list(range(4))
    assert {row["number"] for row in values(broker, f"{topic}-copy")} == set(range(4))
