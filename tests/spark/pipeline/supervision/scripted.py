"""A pipeline that does what a test says instead of running on Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moldau.spark.pipeline import Pipeline, PipelineError, Problem, SinkProgress

TEXT = """
name = "{name}"
[sources.events]
topic = "events"
schema = "name STRING"
[tables.names]
sql = "SELECT upper(name) AS name FROM events"
[sinks.raw]
from = "names"
type = "delta"
path = "lake"
[restarts]
limit = 2
first_pause = "1 millisecond"
"""

# What one start does: it gets the functions that say that it runs, and how far it is.
Start = Callable[["Told"], dict[str, SinkProgress]]


class Told:
    """What a start is given."""

    def __init__(self, stop: threading.Event, on_start: Any, on_progress: Any) -> None:
        self.stop = stop
        self.on_start: Callable[[], None] = on_start
        self.on_progress: Callable[[SinkProgress], None] = on_progress


class Scripted(Pipeline):
    """Does one of `starts` at each start."""

    starts: list[Start]

    def run(self, **given: Any) -> dict[str, SinkProgress]:
        start = self.starts.pop(0)
        return start(Told(given["stop"], given["on_start"], given["on_progress"]))


def scripted(
    folder: Path, *starts: Start, more: str = "", name: str = "test", bootstrap: str | None = None
) -> Scripted:
    path = folder / f"{name}.toml"
    path.write_text(more + TEXT.format(name=name), "utf-8")
    pipeline = Scripted.load(path, bootstrap=bootstrap)
    assert isinstance(pipeline, Scripted)
    pipeline.starts = list(starts)
    return pipeline


def failing(message: str = "gone", *, rows: int = 0, detail: str = "", part: str = "") -> Start:
    """Runs, reads some rows, and fails."""

    def start(told: Told) -> dict[str, SinkProgress]:
        told.on_start()
        if rows:
            told.on_progress(SinkProgress("raw", batch=0, batch_rows=rows, rows=rows, written=rows))
        raise PipelineError(Problem(message, part=part), detail=detail)

    return start


def unable(told: Told) -> dict[str, SinkProgress]:
    """Does not even start."""
    raise PipelineError(Problem("no broker answered"))


def ending(rows: int) -> Start:
    """Reads some rows and ends by itself."""

    def start(told: Told) -> dict[str, SinkProgress]:
        told.on_start()
        progress = SinkProgress("raw", batch=1, batch_rows=rows, rows=rows, written=rows)
        told.on_progress(progress)
        return {"raw": progress}

    return start


def until_stopped(told: Told) -> dict[str, SinkProgress]:
    told.on_start()
    assert told.stop.wait(60)
    return {"raw": SinkProgress("raw")}
