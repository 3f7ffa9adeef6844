"""A supervisor: one pipeline that is kept running, and whose status others can see.

    starting    until its queries run
    running     until it ends, is stopped, or fails
    restarting  it has failed, and waits for its next start
    done        it has read what there was (`once`)
    stopped     it was told to
    failed      a restart would not help, or there were too many; the reason is raised

The first start has to go well: what is wrong with it concerns whoever started it. A failure later
on leads to another start, after a pause, from the checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from moldau.client.pipelines.status import PipelineStatus, Request
from moldau.peer.retries import PeerSettings
from moldau.security.client_config import client_security
from moldau.spark.errors import log
from moldau.spark.pipeline.errors import CheckpointInUse
from moldau.spark.pipeline.file.intervals import seconds_of
from moldau.spark.pipeline.run.progress import SinkProgress
from moldau.spark.pipeline.supervision.alert import run_alert
from moldau.spark.pipeline.supervision.failures import last_error, may_pass
from moldau.spark.pipeline.supervision.pauses import Pauses
from moldau.spark.pipeline.supervision.runnable import Runnable
from moldau.spark.pipeline.supervision.slow_batches import SlowBatches
from moldau.spark.pipeline.supervision.status import (
    first_status,
    with_failed_sink,
    with_progress,
    with_state,
)
from moldau.spark.pipeline.supervision.status_writer import StatusWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnStatus = Callable[[PipelineStatus], None]
OnProgress = Callable[[SinkProgress], None]
Progress = dict[str, SinkProgress]


class Supervisor:
    """Runs a pipeline until it is stopped, ends, or fails for good. For one thread.

    `session` is called for every start. `stop` is also set by a request in the status topic.
    """

    def __init__(
        self,
        pipeline: Runnable,
        session: Callable[[], SparkSession],
        *,
        once: bool = False,
        emit_open: bool = False,
        stop: threading.Event | None = None,
        on_progress: OnProgress | None = None,
        on_status: OnStatus | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._session = session
        self._once = once
        self._emit_open = emit_open
        self._stop = stop or threading.Event()
        self._on_progress = on_progress
        self._on_status = on_status
        self._general = pipeline.file.settings.general
        self.status = first_status(pipeline.file, once=once)
        self._writer: StatusWriter | None = None
        self._has_started = False
        self._has_progress = False
        self._totals: Progress = {}
        self._latest: Progress = {}
        self._slow = {
            sink.name: SlowBatches(sink.trigger, 0.0 if once else seconds_of(sink.trigger))
            for sink in self.status.sinks
        }

    def run(self) -> Progress:
        """Return how far each sink came, in all starts; raise what it has failed with for good."""
        pauses = Pauses.of(self._general.restarts)
        if self._once:
            # Whoever schedules bounded runs has rules for those that fail.
            pauses.limit = 0
        with ExitStack() as stack:
            if self._general.status:
                writer = StatusWriter(
                    self._general.bootstrap, self._peer(), self.status, self._on_request
                )
                self._writer = stack.enter_context(writer)
            while True:
                try:
                    done = self._run_once()
                except Exception as problem:
                    self._after_failure(problem, pauses)
                    continue
                ended = "stopped" if self._stop.is_set() else "done"
                self._tell(with_state(self.status, ended, next_start_ms=None))  # type: ignore[arg-type]
                return done

    def _run_once(self) -> Progress:
        self._has_progress = False
        if self._stop.is_set():
            # Told to stop before it began, or while it waited for its next start.
            return {name: replace(each, is_done=True) for name, each in self._latest.items()}
        done = self._pipeline.run(
            once=self._once,
            emit_open=self._emit_open,
            spark=self._session(),
            stop=self._stop,
            on_progress=self._note,
            on_start=self._started,
        )
        return {name: self._in_all(progress) for name, progress in done.items()}

    def _started(self) -> None:
        self._has_started = True
        self._tell(with_state(self.status, "running", next_start_ms=None))

    def _note(self, progress: SinkProgress) -> None:
        self._has_progress = True
        progress = self._in_all(progress)
        self._latest[progress.sink] = progress
        slow = self._slow[progress.sink]
        hint = slow.note(progress)
        if hint:
            log.warning("%s", hint)
        self._tell(with_progress(self.status, progress, slow=slow.is_slow))
        if self._on_progress is not None:
            self._on_progress(progress)

    def _in_all(self, progress: SinkProgress) -> SinkProgress:
        """Return the progress with what earlier starts have counted."""
        before = self._totals.get(progress.sink)
        if before is None:
            return progress
        written = progress.written
        if written is not None:
            written += before.written or 0
        return replace(
            progress,
            rows=progress.rows + before.rows,
            written=written,
            dead_letters=progress.dead_letters + before.dead_letters,
            late_rows=progress.late_rows + before.late_rows,
        )

    def _after_failure(self, problem: Exception, pauses: Pauses) -> None:
        """Wait for the next start; raise the problem if there is none."""
        error = last_error(problem)
        failed = msgspec.structs.replace(self.status, last_error=error)
        failed = with_failed_sink(failed)
        pause_s = pauses.after_failure(self._has_progress)
        if not self._has_started or isinstance(problem, CheckpointInUse) or not may_pass(problem):
            pause_s = None
        if pause_s is None:
            failed = with_state(failed, "failed", next_start_ms=None)
            self._tell(failed)
            self._alert(failed)
            raise problem
        next_ms = int((time.time() + pause_s) * 1000)
        restarts = self.status.restarts + 1
        failed = with_state(failed, "restarting", restarts=restarts, next_start_ms=next_ms)
        self._tell(failed)
        log.warning(
            "pipeline %s has failed: %s; starting it again in %g s (%d of at most %d in a row)",
            self.status.name,
            error.message,
            pause_s,
            pauses.failures,
            pauses.limit,
        )
        if pauses.failures == 1:
            self._alert(failed)
        self._totals = dict(self._latest)
        self._stop.wait(pause_s)

    def _alert(self, status: PipelineStatus) -> None:
        # A failure of the first start is told to whoever started it.
        if self._general.alert and self._has_started:
            run_alert(self._general.alert, status)

    def _tell(self, status: PipelineStatus) -> None:
        self.status = status
        if self._writer is not None:
            self._writer.tell(status)
        if self._on_status is not None:
            self._on_status(status)

    def _on_request(self, request: Request) -> None:
        log.warning("pipeline %s: %s asked it to stop", self.status.name, request.by)
        self._stop.set()

    def _peer(self) -> PeerSettings:
        security = self._pipeline.file.security() or client_security()
        return PeerSettings(
            client_id=f"moldau-pipeline-{self.status.name}",
            security=security,
            retry_within_s=10.0,
            request_timeout_s=10.0,
        )
