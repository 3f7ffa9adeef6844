"""`moldau pipeline`: run, check and replay pipeline files."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.log_lines import LogFormat, log_in
from moldau.cli.options import Json
from moldau.cli.pipelines.loading import (
    File,
    Files,
    Folder,
    Master,
    PipelineBootstrap,
    Set,
    Verbose,
    failures,
    load,
    moment,
    opened_session,
)
from moldau.cli.pipelines.redrive import redrive
from moldau.cli.pipelines.statuses import list_pipelines, status, stop
from moldau.cli.views.output import show, show_json, show_table

if TYPE_CHECKING:
    from moldau.spark.pipeline import Problem, SinkProgress

app = typer.Typer(help="Run pipelines on Spark: from topics to tables.", no_args_is_help=True)


@app.command()
def run(
    files: Files,
    once: Annotated[
        bool,
        typer.Option("--once", help="Stop when all records that exist now have been read."),
    ] = False,
    emit_open: Annotated[
        bool,
        typer.Option(
            "--emit-open",
            help="With --once: also write windows and joins that are still open. They are "
            "written again when they are complete.",
        ),
    ] = False,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address for metrics and health over HTTP; port 0 takes a free one. "
            "Default: none.",
        ),
    ] = None,
    master: Master = None,
    bootstrap: PipelineBootstrap = None,
    folder: Folder = None,
    set: Set = None,
    log_format: LogFormat = "text",
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run pipelines until Ctrl-C, or once over the records that exist now.

    They resume where they stopped or crashed: their progress is in the checkpoint folders. A
    pipeline that fails is restarted after a growing pause, while the others continue.
    """
    from moldau.cli.pipelines.fleet import run_fleet
    from moldau.cli.views.pipeline import PipelineView

    if emit_open and not once:
        raise typer.BadParameter("needs --once", param_hint="--emit-open")
    # What a batch has done is news for a program; a person has the view of it.
    log_in(log_format, "INFO" if log_format == "json" else "WARNING")
    with failures(verbose):
        pipelines = [load(file, master, bootstrap, folder, set) for file in files]
        for pipeline in pipelines:
            pipeline.require_ready()
        view = PipelineView(bounded=once, as_json=as_json, several=len(files) > 1)
        fleet = run_fleet(
            pipelines, view, once=once, emit_open=emit_open, http=http, verbose=verbose
        )
    if not as_json:
        done = {
            f"{name}/{sink}" if len(files) > 1 else sink: progress
            for name, sinks in fleet.results.items()
            for sink, progress in sinks.items()
        }
        _summary(done)
        if fleet.were_stopped:
            show("stopped; the next run resumes here", stderr=True)
        elif not emit_open:
            _tell_open(done)


@app.command()
def check(
    file: File,
    master: Master = None,
    bootstrap: PipelineBootstrap = None,
    folder: Folder = None,
    set: Set = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Check whether a pipeline would run: its file, topics, SQL and tables. Writes nothing."""
    from moldau.spark.pipeline import PipelineError

    problems: list[Problem] = []
    try:
        with failures(verbose, but=PipelineError):
            pipeline = load(file, master, bootstrap, folder, set)
            with opened_session(pipeline, verbose) as spark:
                problems = pipeline.check(spark)
    except PipelineError as found:
        problems = list(found.problems)
    if as_json:
        show_json({"file": str(file), "problems": [asdict(problem) for problem in problems]})
    elif problems:
        for problem in problems:
            show(str(problem), stderr=True)
    else:
        show(f"{file}: fine")
    if problems:
        raise typer.Exit(1)


@app.command()
def replay(
    file: File,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Start of the span, such as 2024-02-29T12:00Z, or an age such as 2h. "
            "Default: the beginning.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End of the span, exclusive. Default: now."),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Write only to this sink; may be repeated."),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="Another path or topic for the chosen sink."),
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add rows even to tables that already have some.")
    ] = False,
    master: Master = None,
    bootstrap: PipelineBootstrap = None,
    folder: Folder = None,
    set: Set = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline over the records of a time span, as one batch.

    The records' timestamps decide. Checkpoints are neither read nor changed.
    """
    from moldau.cli.views.pipeline import ReplayView

    start, end = moment(from_, "--from"), moment(until, "--until")
    if start is not None and end is not None and start >= end:
        raise typer.BadParameter("is not before --until", param_hint="--from")
    with failures(verbose):
        pipeline = load(file, master, bootstrap, folder, set)
        with opened_session(pipeline, verbose) as spark, ReplayView(spark, as_json=as_json) as view:
            done = pipeline.replay(
                start,
                end,
                sinks=sink or (),
                into=into,
                append=append,
                spark=spark,
                on_sink=view.update,
            )
    if not as_json:
        _summary(done)


def _summary(done: dict[str, SinkProgress]) -> None:
    rows = [
        (
            name,
            each.rows,
            "-" if each.written is None else each.written,
            each.dead_letters,
            each.late_rows,
            "-" if each.lag is None else each.lag,
        )
        for name, each in done.items()
    ]
    show_table(("SINK", "READ", "WRITTEN", "DEAD LETTERS", "LATE ROWS", "LAG"), rows)


def _tell_open(done: dict[str, SinkProgress]) -> None:
    for name, each in done.items():
        if each.open_rows:
            show(
                f"{name}: windows or joins are open ({each.open_rows:,} rows of "
                "state); a later run writes them when they are complete; "
                "--emit-open writes them now",
                stderr=True,
            )


app.command("list")(list_pipelines)
app.command()(status)
app.command()(stop)
app.command()(redrive)
