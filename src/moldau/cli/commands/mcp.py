"""`moldau mcp`: the cluster for an assistant, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Annotated

import typer

from moldau.cli.commands.console import settings_of
from moldau.cli.http_login import REGISTRY_VARIABLE, registry_address
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap


def mcp(
    registry: Annotated[
        str,
        typer.Option(
            envvar=REGISTRY_VARIABLE,
            metavar="URL",
            callback=registry_address,
            help="The schema registry, such as http://127.0.0.1:8081. A login for it is in the "
            "client's config. Default: none.",
        ),
    ] = "",
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Offer tools that change something, too."),
    ] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:FIELD",
            help="A field of the values that is not shown, as for `moldau console`. "
            "May be repeated.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let an assistant look at a cluster, by the Model Context Protocol over stdin and stdout.

    It offers what the console's API does: what is wrong, topics, messages, groups and why one is
    behind, pipelines, dead letters. Nothing is changed without --allow-changes.
    """
    from moldau.console.mcp.server import serve

    settings = settings_of(bootstrap, registry=registry, mask=mask or [], everybody=True)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    # Whatever prints meanwhile must not come between the answers.
    with os.fdopen(os.dup(1), "wb") as out, open(0, "rb", closefd=False) as source:
        os.dup2(2, 1)
        asyncio.run(serve(settings, source, out, may_change=allow_changes))
