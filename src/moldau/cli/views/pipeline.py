"""A running pipeline on the screen, and as JSON."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self

from moldau.cli.views.output import are_logged, console, show, show_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress, TaskID

    from moldau.spark.pipeline import SinkProgress

# Where lines cannot change, a sink says so often at most how it is.
LINE_EVERY_S = 2.0
TASKS_EVERY_S = 0.3


def line_of(progress: SinkProgress) -> str:
    """`views: batch 3, 5,004 rows in 0.9 s (5,560 rows/s), lag 0, 4 dead letters`."""
    parts = [
        f"batch {progress.batch}",
        f"{progress.batch_rows:,} rows in {progress.batch_s:.1f} s ({progress.rows_per_s:,.0f} "
        f"rows/s)",
    ]
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    if progress.dead_letters:
        parts.append(f"{progress.dead_letters:,} dead letters")
    if progress.late_rows:
        parts.append(f"{progress.late_rows:,} late rows")
    return f"{progress.sink}: {', '.join(parts)}"


class PipelineView:
    """One line for each sink: on a terminal it changes, with a bar if there is an end.

    Elsewhere lines are added; with JSON, one object for every batch, on stdout. With `several`
    pipelines, a sink is named with its own: `orders/raw`. Any thread may update it.
    """

    def __init__(self, *, bounded: bool, as_json: bool, several: bool = False) -> None:
        self._is_bounded = bounded
        self._as_json = as_json
        self._several = several
        self._lock = threading.Lock()
        self._live: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}

    def __enter__(self) -> Self:
        out = console(stderr=True)
        if not self._as_json and out.is_terminal and not are_logged():
            self._live = _bars(self._is_bounded)
            self._live.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, progress: SinkProgress, pipeline: str) -> None:
        with self._lock:
            if self._as_json:
                show_json({"pipeline": pipeline, **asdict(progress)})
                return
            if self._several:
                progress = replace(progress, sink=f"{pipeline}/{progress.sink}")
            self._show(progress, pipeline)

    def _show(self, progress: SinkProgress, pipeline: str) -> None:
        if self._live is not None:
            self._move(self._live, progress)
        elif progress.batch_rows and self._is_due(progress.sink):
            show(line_of(progress), stderr=True, pipeline=pipeline, **asdict(progress))

    def _move(self, live: Progress, progress: SinkProgress) -> None:
        task = self._tasks.get(progress.sink)
        if task is None:
            task = self._tasks[progress.sink] = live.add_task(progress.sink, total=None, said="")
        _, _, said = line_of(progress).partition(": ")
        total = None if progress.lag is None else progress.rows + progress.lag
        live.update(task, completed=progress.rows, total=total, said=said)

    def _is_due(self, sink: str) -> bool:
        now = time.monotonic()
        if now - self._said.get(sink, float("-inf")) < LINE_EVERY_S:
            return False
        self._said[sink] = now
        return True


class ReplayView:
    """The current sink of a replay, with a bar of Spark's tasks on a terminal."""

    def __init__(self, spark: SparkSession, *, as_json: bool) -> None:
        self._spark = spark
        self._as_json = as_json
        self._live: Progress | None = None
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        if not self._as_json and console(stderr=True).is_terminal:
            self._live = _bars(True)
            self._live.add_task("planning", total=None, said="")
            self._live.start()
            self._watcher.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        if self._live is not None:
            self._watcher.join()
            self._live.stop()

    def update(self, progress: SinkProgress) -> None:
        if progress.is_done and self._as_json:
            show_json(asdict(progress))
        elif self._live is not None:
            self._live.update(self._live.task_ids[0], description=progress.sink)
        elif progress.is_done and not self._as_json:
            show(line_of(progress), stderr=True)

    def _watch(self) -> None:
        assert self._live is not None
        tracker = self._spark.sparkContext.statusTracker()
        while not self._ended.wait(TASKS_EVERY_S):
            stages: list[Any] = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                total = sum(stage.numTasks for stage in known)
                done = sum(stage.numCompletedTasks for stage in known)
                said = f"{done} of {total} tasks"
                self._live.update(self._live.task_ids[0], total=total, completed=done, said=said)


def _bars(bounded: bool) -> Progress:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    name, said = TextColumn("{task.description}"), TextColumn("{task.fields[said]}")
    middle = [BarColumn(20)] if bounded else [SpinnerColumn()]
    return Progress(
        name, *middle, said, TimeElapsedColumn(), console=console(stderr=True), transient=True
    )
