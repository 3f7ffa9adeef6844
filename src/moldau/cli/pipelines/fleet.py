"""`moldau pipeline run`: one or more pipelines in this process, on the screen and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from moldau.cli.pipelines.loading import hushed, starting_spark
from moldau.cli.stopping import stopping
from moldau.cli.views.output import Failure, show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.cli.views.pipeline import PipelineView
    from moldau.client.pipelines.status import PipelineStatus
    from moldau.spark.pipeline import Pipeline
    from moldau.spark.pipeline.run.metrics import PipelineMetrics
    from moldau.spark.pipeline.supervision.fleet import Fleet


def run_fleet(
    pipelines: Sequence[Pipeline],
    view: PipelineView,
    *,
    once: bool,
    emit_open: bool,
    http: str | None,
    verbose: bool,
) -> Fleet:
    """Run them until all have ended or a signal stops them; raise what failed ones have met."""
    from moldau.spark.pipeline.run.metrics import PipelineMetrics
    from moldau.spark.pipeline.run.progress import SinkProgress
    from moldau.spark.pipeline.supervision.fleet import Fleet, require_distinct, shared_config
    from moldau.spark.pipeline.supervision.sessions import Sessions

    require_distinct(pipelines)
    config = shared_config(pipelines)

    def new_session() -> SparkSession:
        with starting_spark(verbose):
            spark = pipelines[0].new_session(config)
        return hushed(spark, verbose)

    metrics = PipelineMetrics()

    def on_progress(name: str, progress: SinkProgress) -> None:
        metrics.update(name, progress)
        view.update(progress, name)

    with _served(http, metrics), Sessions(new_session) as sessions:
        sessions.get()
        fleet = Fleet(
            pipelines,
            sessions.get,
            once=once,
            emit_open=emit_open,
            on_progress=on_progress,
            on_status=_teller(metrics, len(pipelines)),
        )
        # Spark's own handler of Ctrl-C was set by its start.
        with stopping() as stop, view:
            fleet.run(stop)
    _raise_failures(fleet)
    return fleet


def _teller(metrics: PipelineMetrics, count: int) -> Callable[[PipelineStatus], None]:
    def tell(status: PipelineStatus) -> None:
        metrics.tell(status)
        if count > 1 and status.state == "failed" and status.last_error is not None:
            # The command itself says so only when the last of them has ended.
            message = status.last_error.message
            text = f"{status.name} has failed: {message}"
            show(text, "red", stderr=True, pipeline=status.name)

    return tell


def _raise_failures(fleet: Fleet) -> None:
    failed = fleet.failures
    if len(fleet.results) + len(failed) > 1 and failed:
        raise Failure("\n".join(f"{name}: {problem}" for name, problem in failed.items()))
    for problem in failed.values():
        raise problem


@contextmanager
def _served(http: str | None, metrics: PipelineMetrics) -> Iterator[None]:
    """Show metrics and health over HTTP in the block, where that is asked for."""
    if http is None:
        yield
        return
    from moldau.broker.settings.listeners import parse_address
    from moldau.http.thread import HttpThread
    from moldau.settings import InvalidSetting

    try:
        host, port = parse_address("--http", http)
    except InvalidSetting as problem:
        raise typer.BadParameter(problem.reason, param_hint="--http") from None
    try:
        server = HttpThread(host, port, metrics.routes()).__enter__()
    except OSError as problem:
        raise Failure(str(problem), "choose another address with --http HOST:PORT") from None
    show(f"metrics on {server.url}/metrics", "dim", stderr=True)
    try:
        yield
    finally:
        server.__exit__()
