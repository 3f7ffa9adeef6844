"""A running pipeline: its queries, followed until they end or are stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import (  # type: ignore[import-untyped]
    Py4JError,
    Py4JJavaError,
    Py4JNetworkError,
)

from moldau.spark.errors import log
from moldau.spark.formats.shared_batches import forget
from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.plan.plan import Plan
from moldau.spark.pipeline.plan.tables import place_of_failure
from moldau.spark.pipeline.reasons import in_words
from moldau.spark.pipeline.run.checkpoint import Checkpoint
from moldau.spark.pipeline.run.evolution import Evolution, is_newer_schema
from moldau.spark.pipeline.run.failed_records import with_records
from moldau.spark.pipeline.run.lost_processes import lost_process
from moldau.spark.pipeline.run.progress import SinkProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2
# How long a stop waits for the batches under way. One that takes longer is broken off, and is run
# again by the next start.
FINISH_WITHIN_S = 10.0

# py4j prints what a batch raises, with its stack; it is kept, and told once.
PROXY_LOG = "py4j.clientserver"

# The errors of a call whose process has ended.
GONE = (Py4JNetworkError, ConnectionRefusedError)

# How often the query of a sink is started again because a process was lost, before it has
# finished another batch.
RESTARTS = 3

OnProgress = Callable[[SinkProgress], None]


class Running:
    """The queries of one pipeline by sink, with the lock of its checkpoint. For one thread."""

    def __init__(self, file: PipelineFile, plan: Plan, checkpoint: Checkpoint) -> None:
        self.file = file
        self.plan = plan
        self.checkpoint = checkpoint
        self.queries: dict[str, StreamingQuery] = {}
        self.progress: dict[str, SinkProgress] = {}
        # How to start the query of a sink again, where it was, and whether with a new plan.
        self.restart: Callable[[str, bool], None] | None = None
        # How to go on with a newer schema.
        self.evolution: Evolution | None = None
        self.is_bounded = False
        self._restarts: dict[str, tuple[int, int]] = {}
        self._paused: dict[str, PipelineError] = {}
        self._seen: dict[str, str] = {}
        self._is_open = True
        logging.getLogger(PROXY_LOG).addFilter(_is_news)

    def add(self, sink: str, query: StreamingQuery) -> None:
        self.queries[sink] = query
        self.progress.setdefault(sink, SinkProgress(sink))
        self._seen.setdefault(sink, "")

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()

    def wait(
        self, *, stop: threading.Event | None = None, on_progress: OnProgress | None = None
    ) -> dict[str, SinkProgress]:
        """Follow the queries until all have ended or `stop` is set, which stops them.

        PipelineError when one fails; the others are stopped then. One that has only lost a process
        of Spark's is started again, and one that has met a newer schema goes on or pauses.
        """
        stop = stop or threading.Event()
        try:
            while not stop.is_set():
                active = [query.isActive for query in self.queries.values()]
                self._follow(on_progress)
                restarted = [self._is_restarted(name) for name in self.queries]
                is_over = self.is_bounded or not self._paused
                if is_over and not any(active) and not any(restarted):
                    break
                stop.wait(POLL_S)
            for problem in self._paused.values():
                if not stop.is_set():
                    raise problem
        except Exception as problem:
            self.stop(finish=False)
            if is_gone(problem) and not stop.is_set():
                raise without_java(problem) from None
            # The signal that stopped this process may also have stopped the others that it needs.
            if not stop.is_set():
                raise
            log.warning("failed to stop the pipeline cleanly: %s", problem)
        except BaseException:
            self.stop(finish=False)
            raise
        if stop.is_set():
            # A query that this aborts fails, which is no failure of the pipeline.
            self.stop()
            with suppress(Py4JError, *GONE):
                self._follow(on_progress)
        return self.progress

    def stop(self, *, finish: bool = True) -> None:
        """Stop the queries, each after the batch that it is in, if that does not take long.

        Where Java has ended, as when a supervisor tells all processes to, they have stopped.
        """
        if not self._is_open:
            return
        self._is_open = False
        deadline = time.monotonic() + (FINISH_WITHIN_S if finish else 0)
        try:
            for name, query in self.queries.items():
                _stop(name, query, deadline)
        finally:
            logging.getLogger(PROXY_LOG).removeFilter(_is_news)
            self.checkpoint.release()
            forget(self.plan.run)

    def _follow(self, on_progress: OnProgress | None) -> None:
        for name, query in self.queries.items():
            for report in self._new_reports(name, query):
                if not report["batchDuration"] or report["batchId"] < 0:
                    continue
                planned = self.plan.sinks[name]
                progress = self.progress[name].after(report, planned.sends)
                if planned.mode != "append":
                    progress = replace(progress, open_rows=0)
                if planned.writer.counts_rows:
                    progress = replace(progress, written=planned.writer.outcome.rows)
                self.progress[name] = progress
                if on_progress is not None:
                    on_progress(progress)

    def _new_reports(self, name: str, query: StreamingQuery) -> list[Any]:
        """Reports of batches that were not seen yet; an idle query repeats its last batch id."""
        reports = [each for each in query.recentProgress if each["timestamp"] > self._seen[name]]
        if reports:
            self._seen[name] = reports[-1]["timestamp"]
        return reports

    def _is_restarted(self, name: str) -> bool:
        """Return whether the query of a sink had to be started again; raises what it has failed
        with."""
        query, outcome = self.queries[name], self.plan.sinks[name].writer.outcome
        problem = query.exception()
        if problem is None or name in self._paused:
            return False
        cause = outcome.failure or problem
        detail = f"{cause}\n{problem}"
        if is_newer_schema(detail) and self.evolution is not None:
            refusal = failure(self.file, name, cause, detail=detail)
            return self._is_evolved(name, refusal, self.evolution)
        lost = lost_process(query, outcome.failure)
        if lost is None:
            found = failure(self.file, name, cause, detail=detail)
            raise with_records(found, self.checkpoint, name)
        self._restart(name, lost, detail)
        log.warning("sink %s: %s; restarting its query where it stopped", name, lost)
        return True

    def _is_evolved(self, name: str, refusal: PipelineError, evolution: Evolution) -> bool:
        plan = evolution.plan_after(self.plan, name, refusal)
        if plan is None:
            self._paused[name] = refusal
            return False
        self.checkpoint.remember(plan.read_as())
        self.plan = plan
        self._restart(name, str(refusal), refusal.detail, is_new=True)
        return True

    def _restart(self, name: str, why: str, detail: str, is_new: bool = False) -> None:
        """Start the query of a sink again, unless that has not helped several times."""
        batch = self.progress[name].batch
        before, times = self._restarts.get(name, (batch, 0))
        times = times + 1 if before == batch else 1
        if times > RESTARTS or self.restart is None:
            message = f"{why}. It failed {times} times in a row; the next run resumes here"
            raise PipelineError(self.file.problem(message, "sinks", name), detail=detail)
        self._restarts[name] = (batch, times)
        self.plan.sinks[name].writer.outcome.failure = None
        self.restart(name, is_new)


def _stop(name: str, query: StreamingQuery, deadline: float) -> None:
    try:
        while time.monotonic() < deadline and query.isActive and query.status["isTriggerActive"]:
            time.sleep(0.02)
        query.stop()
    except (Py4JError, *GONE):
        # Without Java there is no query either.
        with suppress(Py4JError, *GONE):
            if query.isActive:
                log.warning(
                    "the query of sink %s is still running after it was asked to stop", name
                )


def is_gone(problem: BaseException) -> bool:
    """Return whether a call failed because Java has ended: it has no error of Java's own."""
    is_bare = isinstance(problem, Py4JError) and not isinstance(problem, Py4JJavaError)
    return is_bare or isinstance(problem, GONE)


def _is_news(record: logging.LogRecord) -> bool:
    return "executing the Python Proxy" not in record.getMessage()


def without_java(problem: Exception) -> PipelineError:
    return PipelineError(
        Problem(
            "Spark's Java process has ended: it was killed, or ran out of "
            "memory (see spark.driver.memory); the next run resumes where this "
            "one stopped"
        ),
        detail=str(problem),
    )


def failure(file: PipelineFile, sink: str, cause: BaseException, detail: str = "") -> PipelineError:
    """Describe what went wrong in the query of a sink, with the part where it arose."""
    message = in_words(cause)
    detail = detail or str(cause)
    found = place_of_failure(file, cause)
    if found is not None:
        line, part = found
        return PipelineError(
            Problem(f"{message} (while writing sink {sink})", str(file.path), line, part),
            detail=detail,
        )
    for name, source in file.settings.sources.items():
        if any(f"{topic}-" in message or repr(topic) in message for topic in source.topics):
            path = ("sources", name)
            return PipelineError(
                Problem(message, str(file.path), file.places.line(path), f"source {name}"),
                detail=detail,
            )
    return PipelineError(file.problem(message, "sinks", sink), detail=detail)
