"""The commands, put together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer.core import TyperGroup

from moldau import __version__
from moldau.cli.commands import (
    bench,
    cluster,
    consume,
    doctor,
    groups,
    log,
    pipeline,
    produce,
    topics,
    up,
)
from moldau.cli.commands.broker import Flags, run_broker
from moldau.cli.demo import demo
from moldau.cli.views.output import Failure, leave_stdout, show_failure


class InOrder(TyperGroup):
    """Lists the commands in the order that a newcomer needs them."""

    ORDER = (
        "broker",
        "up",
        "cluster",
        "topics",
        "produce",
        "consume",
        "groups",
        "pipeline",
        "log",
        "doctor",
        "demo",
        "bench",
    )

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return sorted(self.commands, key=self.ORDER.index)


app = typer.Typer(
    name="moldau",
    cls=InOrder,
    help="A Kafka-compatible broker in Python, and tools to work with it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"moldau {__version__}")
        raise typer.Exit


@app.callback()
def _moldau(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


@app.command()
def broker(
    data_dir: Annotated[
        str | None, typer.Option(metavar="D", help="Data folder. Default: ./moldau-data.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address to listen on; port 0 takes a free one. Default: 127.0.0.1:9092.",
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address that clients should use. Default: the one that they connected to.",
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="N", help="This broker's id. Default: 0.")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOSTS",
            help="ZooKeeper ensemble of the cluster to join, HOST:PORT,... with an optional "
            "/CHROOT. Without it, the broker runs alone.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File of settings: KEY=VALUE lines, or TOML if its name ends in .toml.",
        ),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting; may be repeated."),
    ] = None,
) -> None:
    """Run a broker in the foreground.

    It prints one line on stdout when it is ready, logs to stderr and stops on SIGTERM or Ctrl-C.
    """
    given: dict[str, str | None] = {
        "--data-dir": data_dir,
        "--listen": listen,
        "--advertise": advertise,
        "--id": id,
        "--zookeeper": zookeeper,
        "--config": config,
    }
    flags: Flags = {flag: [value] for flag, value in given.items() if value is not None}
    if set:
        flags["--set"] = set
    raise typer.Exit(run_broker(flags))


app.command()(up.up)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(log.app, name="log")
app.command()(doctor.doctor)
app.command()(demo.demo)
app.command()(bench.bench)


def run(words: list[str]) -> int:
    """Run one command line; failures are printed, and the exit status is the result."""
    try:
        status = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        leave_stdout()
        return 1
    return status


def _run(words: list[str]) -> int:
    try:
        app(args=words, prog_name="moldau")
    except Failure as failure:
        show_failure(failure)
        return 1
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
