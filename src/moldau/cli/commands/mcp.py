"""`moldau mcp`: the cluster for an assistant, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from moldau.cli.commands.console import settings_of
from moldau.cli.http_login import REGISTRY_VARIABLE, registry_address
from moldau.cli.log_lines import LogFormat, log_in
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap


def mcp(
    registry: Annotated[
        str,
        typer.Option(
            envvar=REGISTRY_VARIABLE,
            metavar="URL",
            callback=registry_address,
            help="Schema registry, such as http://127.0.0.1:8081. Its login is in the client's "
            "config. Default: none.",
        ),
    ] = "",
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Also offer tools that change things."),
    ] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:FIELD",
            help="Field of the values to hide, as for `moldau console`. May be repeated.",
        ),
    ] = None,
    log_format: LogFormat = "text",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let an assistant inspect a cluster, with the Model Context Protocol over stdin and stdout.

    It offers what the console's API offers: problems, topics, messages, groups and why they are
    behind, pipelines, dead letters. It changes nothing without --allow-changes.
    """
    from moldau.console.mcp.server import serve

    log_in(log_format, "WARNING")
    settings = settings_of(bootstrap, registry=registry, mask=mask or [], everybody=True)
    # Whatever prints meanwhile must not come between the answers.
    with os.fdopen(os.dup(1), "wb") as out, open(0, "rb", closefd=False) as source:
        os.dup2(2, 1)
        asyncio.run(serve(settings, source, out, may_change=allow_changes))
