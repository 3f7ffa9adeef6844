"""The commands, put together."""

from __future__ import annotations

import functools
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from moldau import __version__
from moldau.cli.client_config import add_client_config
from moldau.cli.commands import (
    bench,
    cluster,
    console,
    consume,
    doctor,
    groups,
    log,
    mcp,
    pipeline,
    produce,
    schemas,
    top,
    topics,
    transactions,
    up,
)
from moldau.cli.commands.access import acls, certs, quotas, users
from moldau.cli.commands.broker import Flags, run_broker
from moldau.cli.demo import demo
from moldau.cli.views.output import Failure, leave_stdout, show_failure
from moldau.settings import InvalidSetting


class InOrder(TyperGroup):
    """Lists the commands in the order that a newcomer needs them.

    Those that connect to brokers take `--client-config`.
    """

    ORDER = (
        "broker",
        "up",
        "cluster",
        "topics",
        "produce",
        "consume",
        "groups",
        "transactions",
        "schemas",
        "top",
        "console",
        "mcp",
        "pipeline",
        "certs",
        "users",
        "acls",
        "quotas",
        "log",
        "doctor",
        "demo",
        "bench",
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        add_client_config(self)

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
            help="Address that clients should use. Default: the address that they connected to.",
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
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address for HTTP: health, metrics, schemas, console; port 0 takes a free one. "
            "Default: none.",
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORM", help="Format of log lines: text, or json for programs. Default: text."
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Lock the broker: TLS, passwords and access control. The first start creates the "
            "files for this beside the data folder.",
        ),
    ] = False,
    authority: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder with the files of --secure; all brokers of a cluster need the same "
            "files. Default: beside the data folder.",
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
        "--http": http,
        "--log-format": log_format,
        "--authority": authority,
        "--config": config,
    }
    flags: Flags = {flag: [value] for flag, value in given.items() if value is not None}
    if set:
        flags["--set"] = set
    if secure:
        flags["--secure"] = []
    raise typer.Exit(run_broker(flags))


app.command()(up.up)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(schemas.app, name="schemas")
app.command()(top.top)
app.command()(console.console)
app.command()(mcp.mcp)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(certs.app, name="certs")
app.add_typer(users.app, name="users")
app.add_typer(acls.app, name="acls")
app.add_typer(quotas.app, name="quotas")
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


@functools.cache
def _commands() -> Any:
    """Return the tree of all commands. Who runs several in one process has it made once."""
    return get_command(app)


def _run(words: list[str]) -> int:
    try:
        _commands()(args=words, prog_name="moldau")
    except Failure as failure:
        show_failure(failure)
        return 1
    except InvalidSetting as problem:
        show_failure(Failure(str(problem), "see the file of --client-config"))
        return 1
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
