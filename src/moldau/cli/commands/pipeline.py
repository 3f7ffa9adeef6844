"""`moldau pipeline`: run, check and replay pipeline files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.java_noise import java_noise_dropped
from moldau.cli.options import Json, key_values
from moldau.cli.reset import Kind, parse_target
from moldau.cli.stopping import stopping
from moldau.cli.views.output import Failure, console, show, show_json, show_table
from moldau.client.connection import BOOTSTRAP_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark.pipeline import Pipeline, Problem, SinkProgress

app = typer.Typer(help="Run pipelines on Spark: from topics to tables.", no_args_is_help=True)

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline's TOML file.", show_default=False)
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master. Default: all cores of this machine."),
]
PipelineBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT[,...]",
        help="Brokers to connect to first, instead of those in the file.",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="D",
        help="Folder that the file's relative paths start from. Default: the file's own.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting of the file, such as sinks.raw.path=lake/raw; may be repeated.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Spark's full output with an error.")]


@app.command()
def run(
    file: File,
    once: Annotated[
        bool,
        typer.Option("--once", help="Stop when all records that are there now have been read."),
    ] = False,
    emit_open: Annotated[
        bool,
        typer.Option(
            "--emit-open",
            help="With --once: also write windows and joins that are still open. They are "
            "written again when they are complete.",
        ),
    ] = False,
    master: Master = None,
    bootstrap: PipelineBootstrap = None,
    folder: Folder = None,
    set: Set = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline until Ctrl-C, or once over the records that are there.

    It resumes where it stopped or crashed: its progress is in the checkpoint folder.
    """
    from moldau.cli.views.pipeline import PipelineView

    if emit_open and not once:
        raise typer.BadParameter("needs --once", param_hint="--emit-open")
    with _failures(verbose):
        pipeline = _load(file, master, bootstrap, folder, set)
        pipeline.require_ready()
        view = PipelineView(bounded=once, as_json=as_json)
        with _session(pipeline, verbose) as spark, stopping() as stop:
            with view:
                done = pipeline.run(
                    once=once,
                    emit_open=emit_open,
                    spark=spark,
                    stop=stop,
                    on_progress=view.update,
                )
            was_stopped = stop.is_set()
    if not as_json:
        _summary(done)
        if was_stopped:
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
        with _failures(verbose, but=PipelineError):
            pipeline = _load(file, master, bootstrap, folder, set)
            with _session(pipeline, verbose) as spark:
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

    start, end = _moment(from_, "--from"), _moment(until, "--until")
    if start is not None and end is not None and start >= end:
        raise typer.BadParameter("is not before --until", param_hint="--from")
    with _failures(verbose):
        pipeline = _load(file, master, bootstrap, folder, set)
        with _session(pipeline, verbose) as spark, ReplayView(spark, as_json=as_json) as view:
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


def _load(
    file: Path,
    master: str | None,
    bootstrap: str | None,
    folder: Path | None,
    settings: list[str] | None,
) -> Pipeline:
    from moldau.spark.pipeline import Pipeline

    if not file.is_file():
        raise typer.BadParameter(f"{file} is not a file", param_hint="FILE")
    overrides = {name: _value(text) for name, text in key_values(settings or [], "--set").items()}
    return Pipeline.load(
        file, bootstrap=bootstrap, master=master, folder=folder, overrides=overrides
    )


@contextmanager
def _session(pipeline: Pipeline, verbose: bool) -> Iterator[SparkSession]:
    out = console(stderr=True)
    if out.is_terminal:
        show("starting Spark", "dim", stderr=True)
    with ExitStack() as stack:
        with nullcontext() if verbose else java_noise_dropped():
            spark = stack.enter_context(pipeline.session())
        if not verbose:
            # When Java dies, this prints a stack; the death itself is reported anyway.
            accumulators: Any = spark.sparkContext._accumulatorServer
            accumulators.handle_error = lambda *_: None
        yield spark


@contextmanager
def _failures(verbose: bool, but: type[Exception] | None = None) -> Iterator[None]:
    """Every error as one message; what Spark has to say of it only with `verbose`."""
    from moldau.spark.pipeline import PipelineError
    from moldau.spark.runtime.java import NoJava
    from moldau.spark.runtime.session import SparkFailed, SparkMissing
    from moldau.spark.runtime.shipping import WorkersLack

    try:
        yield
    except (typer.Exit, typer.BadParameter, Failure):
        raise
    except (SparkMissing, NoJava, WorkersLack) as problem:
        raise Failure(str(problem)) from None
    except SparkFailed as problem:
        if verbose:
            show(str(problem.__cause__), stderr=True)
        raise Failure(str(problem)) from None
    except PipelineError as problem:
        if but is PipelineError:
            raise
        if verbose and problem.detail:
            show(problem.detail, stderr=True)
        advice = "" if verbose or not problem.detail else "--verbose shows Spark's full output"
        raise Failure(str(problem), advice) from None
    except KeyboardInterrupt:
        raise Failure("interrupted before the pipeline ran") from None


def _moment(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        target = parse_target(text, time.time())
    except ValueError:
        target = None
    if target is None or target.kind is not Kind.TIME:
        raise typer.BadParameter(
            f"{text!r} is neither a time such as 2024-02-29T12:00Z nor an age such as 30m, 2h, 7d",
            param_hint=option,
        )
    return datetime.fromtimestamp(target.number / 1000, UTC)


def _value(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.removeprefix("-").isdecimal() else text


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
