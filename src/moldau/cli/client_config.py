"""`--client-config`, an option of every command that takes `--bootstrap` or `--registry`."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from typer.main import get_command

from moldau.client.connection import BOOTSTRAP_VARIABLE
from moldau.security.client_config import CLIENT_CONFIG_VARIABLE, client_properties
from moldau.settings import InvalidSetting


def add_client_config(command: Any) -> None:
    """Give the option to a command, or all of a group, that asks brokers or a registry."""
    for inner in getattr(command, "commands", {}).values():
        add_client_config(inner)
    names = [each.name for each in command.params]
    place = next((names.index(each) for each in ("bootstrap", "registry") if each in names), None)
    if place is not None and "client_config" not in names:
        command.params.insert(place + 1, _option())


def _option() -> Any:
    """Return the option as typer makes it, taken from a command that has no other."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def only(
        client_config: Annotated[
            str | None,
            typer.Option(
                metavar="FILE",
                help="Kafka's client properties (security.protocol, ssl.*, sasl.*).",
                envvar=CLIENT_CONFIG_VARIABLE,
                callback=_use,
                expose_value=False,
                # Before --bootstrap, for which it may hold the default.
                is_eager=True,
            ),
        ] = None,
    ) -> None:
        """Do nothing."""

    command: Any = get_command(app)
    (option,) = (each for each in command.params if each.name == "client_config")
    return option


def _use(path: str | None) -> None:
    if not path:
        return
    try:
        properties = client_properties(path)
    except InvalidSetting as problem:
        raise typer.BadParameter(problem.reason, param_hint="--client-config") from None
    # For whatever this command starts, too.
    os.environ[CLIENT_CONFIG_VARIABLE] = os.path.abspath(path)
    if "bootstrap.servers" in properties and not os.environ.get(BOOTSTRAP_VARIABLE):
        os.environ[BOOTSTRAP_VARIABLE] = properties["bootstrap.servers"]
