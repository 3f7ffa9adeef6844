"""Pipeline files for commands: loaded, with a session, and errors put into words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.options import key_values
from moldau.cli.pipelines.java_noise import as_log_line, java_noise_dropped
from moldau.cli.reset import Kind, parse_target
from moldau.cli.views.output import Failure, are_logged, console, show
from moldau.client.connection import BOOTSTRAP_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark.pipeline import Pipeline

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline's TOML file.", show_default=False)
]
Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE", help="The pipelines' TOML files.", show_default=False),
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark master. Default: all cores of this machine."),
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
        help="Folder for the file's relative paths. Default: the file's folder.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting in the file, such as sinks.raw.path=lake/raw; may be repeated.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Spark's full output on errors.")]


def load(
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
def opened_session(pipeline: Pipeline, verbose: bool) -> Iterator[SparkSession]:
    """Give the session that is there, or one for this pipeline."""
    with ExitStack() as stack:
        with starting_spark(verbose):
            spark = stack.enter_context(pipeline.session())
        yield hushed(spark, verbose)


def starting_spark(verbose: bool) -> AbstractContextManager[None]:
    """Say that Spark starts in the block, and drop the noise that it makes.

    Where lines are logged as JSON, so is what Java and its workers say.
    """
    if are_logged() or console(stderr=True).is_terminal:
        show("starting Spark", "dim", stderr=True)
    if are_logged():
        return java_noise_dropped(as_log_line, everything=verbose)
    return nullcontext() if verbose else java_noise_dropped()


def hushed(spark: SparkSession, verbose: bool) -> SparkSession:
    """Return the session, made to print nothing when Java dies: that is reported anyway."""
    if not verbose:
        accumulators: Any = spark.sparkContext._accumulatorServer
        accumulators.handle_error = lambda *_: None
    return spark


@contextmanager
def failures(verbose: bool, but: type[Exception] | None = None) -> Iterator[None]:
    """Show every error as one message; what Spark has to say of it only with `verbose`."""
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


def moment(text: str | None, option: str) -> datetime | None:
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
