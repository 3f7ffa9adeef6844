"""Metrics and health of running pipelines: `moldau pipeline run --http HOST:PORT`.

/metrics   for Prometheus
/healthz   200 unless a pipeline has failed for good: then restart the process
/readyz    200 while all pipelines run
"""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moldau.client.pipelines.status import PipelineStatus
from moldau.http.answers import json
from moldau.http.metrics.families import OPEN_METRICS, TEXT, Families, labels
from moldau.spark.pipeline.run.progress import SinkProgress

_PREFIX = "moldau_pipeline_"
_READY = ("running", "done")


class PipelineMetrics:
    """The progress of all sinks of the pipelines in this process.

    `update`, `tell` and a scrape may come from any thread.
    """

    def __init__(self) -> None:
        self._pipelines: dict[str, PipelineStatus] = {}
        self._sinks: dict[tuple[str, str], tuple[SinkProgress, float]] = {}

    def tell(self, status: PipelineStatus) -> None:
        """Note the state of a pipeline."""
        self._pipelines[status.name] = status

    def update(self, pipeline: str, progress: SinkProgress) -> None:
        """Note where a sink is."""
        self._sinks[pipeline, progress.sink] = (progress, time.monotonic())

    def routes(self) -> list[Route]:
        """Return `/metrics`, `/healthz` and `/readyz`."""

        async def metrics(request: Request) -> Response:
            is_open = "application/openmetrics-text" in request.headers.get("accept", "")
            text = "".join(self.families().render(is_open=is_open))
            return Response(text, media_type=OPEN_METRICS if is_open else TEXT)

        async def healthz(request: Request) -> Response:
            return self._health(lambda state: state != "failed")

        async def readyz(request: Request) -> Response:
            return self._health(lambda state: state in _READY)

        return [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]

    def _health(self, is_fine: Callable[[str], bool]) -> Response:
        pipelines = dict(sorted(self._pipelines.items()))
        bad = [each for each in pipelines.values() if not is_fine(each.state)]
        reasons = [
            f"{each.name} is {each.state}"
            + ("" if each.last_error is None else f": {each.last_error.message}")
            for each in bad
        ]
        running = "the pipeline runs" if len(pipelines) < 2 else "all pipelines run"
        content = {
            "status": "failing" if bad else "ok",
            "reason": "; ".join(reasons) or running,
            "sinks": len(self._sinks),
            "pipelines": {name: each.state for name, each in pipelines.items()},
        }
        return json(content, status=503 if bad else 200)

    def families(self) -> Families:
        """Return all series as they are now."""
        families = Families()
        for name, status in sorted(self._pipelines.items()):
            whose = labels(pipeline=name)
            families.gauge(
                f"{_PREFIX}up", "1 while the pipeline runs.", int(status.state == "running"), whose
            )
            families.counter(
                f"{_PREFIX}restarts_total", "Starts after a failure.", status.restarts, whose
            )
        for (pipeline, sink), (progress, at) in sorted(self._sinks.items()):
            where = labels(pipeline=pipeline, sink=sink)
            for name, about, count in (
                ("rows_read_total", "Records read.", progress.rows),
                ("dead_letters_total", "Records that did not parse.", progress.dead_letters),
                ("late_rows_total", "Rows dropped behind the watermark.", progress.late_rows),
            ):
                families.counter(_PREFIX + name, about, count, where)
            if progress.written is not None:
                families.counter(
                    f"{_PREFIX}rows_written_total", "Rows written.", progress.written, where
                )
            if progress.lag is not None:
                families.gauge(
                    f"{_PREFIX}lag_messages",
                    "Records in the topics that no batch has read.",
                    progress.lag,
                    where,
                )
            for name, about, value in (
                ("batch", "Number of the latest batch.", progress.batch),
                ("batch_seconds", "Time of the latest batch.", progress.batch_s),
                ("batch_rows", "Records in the latest batch.", progress.batch_rows),
                (
                    "open_rows",
                    "Rows of windows and joins that are not complete yet.",
                    progress.open_rows,
                ),
                (
                    "batch_age_seconds",
                    "Time since the latest batch with records.",
                    time.monotonic() - at,
                ),
            ):
                families.gauge(_PREFIX + name, about, value, where)
        return families
