"""A fleet: the pipelines of one process, each with a supervisor of its own, on one Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.client.pipelines.status import PipelineStatus
from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.run.progress import SinkProgress
from moldau.spark.pipeline.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark.pipeline.pipeline import Pipeline

POLL_S = 0.2

OnProgress = Callable[[str, SinkProgress], None]
OnStatus = Callable[[PipelineStatus], None]
Progress = dict[str, SinkProgress]


class Fleet:
    """Runs pipelines side by side: when one fails, or is stopped, the others go on.

    `results` has how far each came, `failures` what was wrong with those that have failed.
    """

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        session: Callable[[], SparkSession],
        *,
        once: bool = False,
        emit_open: bool = False,
        on_progress: OnProgress | None = None,
        on_status: OnStatus | None = None,
    ) -> None:
        require_distinct(pipelines)
        self.results: dict[str, Progress] = {}
        self.failures: dict[str, Exception] = {}
        self._stops = [threading.Event() for _ in pipelines]
        self._supervisors = [
            Supervisor(
                pipeline,
                session,
                once=once,
                emit_open=emit_open,
                stop=stop,
                on_progress=_named(pipeline.settings.name, on_progress),
                on_status=on_status,
            )
            for pipeline, stop in zip(pipelines, self._stops, strict=True)
        ]

    def run(self, stop: threading.Event) -> None:
        """Return when all have ended; `stop` stops all of them."""
        threads = [
            threading.Thread(
                target=self._run, args=(each,), name=f"moldau-{each.status.name}", daemon=True
            )
            for each in self._supervisors
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                if stop.wait(POLL_S):
                    break
        finally:
            for each in self._stops:
                each.set()
            for thread in threads:
                thread.join()

    @property
    def were_stopped(self) -> bool:
        """Whether one of them was told to stop, by a request or a signal."""
        return any(each.status.state == "stopped" for each in self._supervisors)

    def _run(self, supervisor: Supervisor) -> None:
        name = supervisor.status.name
        try:
            self.results[name] = supervisor.run()
        except Exception as problem:
            self.failures[name] = problem


def require_distinct(pipelines: Sequence[Pipeline]) -> None:
    """PipelineError if two have the same name: their checkpoints and statuses would be one."""
    seen: dict[str, Pipeline] = {}
    for pipeline in pipelines:
        name = pipeline.settings.name
        other = seen.setdefault(name, pipeline)
        if other is not pipeline:
            raise PipelineError(
                Problem(
                    f"{other.file.path} and {pipeline.file.path} are both named {name!r}; "
                    "give one of them another 'name'"
                )
            )


def shared_config(pipelines: Sequence[Pipeline]) -> dict[str, str]:
    """Return the settings of a session for all of them; PipelineError where two contradict."""
    config: dict[str, str] = {}
    whose: dict[str, Pipeline] = {}
    for pipeline in pipelines:
        for name, value in pipeline.config().items():
            if config.setdefault(name, value) != value and not _is_of_query(name):
                raise PipelineError(
                    pipeline.file.problem(
                        f"{name} is {value} here and {config[name]} in {whose[name].file.path}; "
                        "pipelines in one process share Spark, so the values must be the same",
                        "spark",
                        name,
                    )
                )
            whose.setdefault(name, pipeline)
    return config


def _is_of_query(name: str) -> bool:
    """Return whether each pipeline can have its own: those are set on its own session."""
    return name.startswith("spark.sql.") and name != "spark.sql.warehouse.dir"


def _named(name: str, on_progress: OnProgress | None) -> Callable[[SinkProgress], None] | None:
    if on_progress is None:
        return None
    return lambda progress: on_progress(name, progress)
