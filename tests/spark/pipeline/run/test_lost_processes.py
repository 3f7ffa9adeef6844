"""Python processes of Spark that are killed under a running pipeline."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark.pipeline import PipelineError
from moldau.spark.pipeline.run.running import Running
from moldau.testing import Broker
from tests.spark.pipeline.files import RAW, SOURCE, event, load, send, table, values
from tests.spark.topics import fresh_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

WITHIN_S = 120.0
SOURCE_RUNNER = "python_streaming_source_runner"
WORKERS = "moldau.spark.runtime.worker_daemon pyspark.worker"
COPY = """
[sinks.copy]
from = "events"
type = "topic"
topic = "{topic}-copy"
"""


def processes(words: str) -> Iterator[int]:
    """The descendants of this process with these words in their command."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True
    )
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, *_ in rows}
    for pid, _, *command in rows:
        if command and words in command[0]:
            above = int(pid)
            while above not in (0, 1, os.getpid()):
                above = parents.get(above, 0)
            if above == os.getpid():
                yield int(pid)


def kill(words: str) -> None:
    found = list(processes(words))
    assert found
    for pid in found:
        os.kill(pid, signal.SIGKILL)


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
            kill(words)
        assert "offsets has ended: it was killed, or ran out of memory" in caplog.text
        send(broker, topic, [event(3, number=3)])
        follow(running, lambda: are_written(4))
        monkeypatch.setattr("moldau.spark.pipeline.run.running.RESTARTS", 0)
        kill(SOURCE_RUNNER)
        with pytest.raises(PipelineError, match=r"Python process .* has ended: it was killed"):
            running.wait()
    assert sorted(row["number"] for row in table(lake)) == list(range(4))
    assert {row["number"] for row in values(broker, f"{topic}-copy")} == set(range(4))
