"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.client.connection import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP

__all__ = ["DEFAULT_BOOTSTRAP", "Bootstrap", "Json", "Topic", "key_values"]


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topic names for shell completion; none when no broker answers at once."""
    from moldau.cli.clients import topic_names
    from moldau.cli.views.output import Failure

    try:
        names = topic_names(ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP, timeout=1)
    except (Failure, typer.BadParameter):
        return []
    return [name for name in names if name.startswith(incomplete)]


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT[,...]",
        help="Brokers to connect to first.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=complete_topics),
]


def key_values(pairs: list[str], option: str) -> dict[str, str]:
    """Return the mapping of repeated `KEY=VALUE` options; wrong usage if one has no `=`."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
        found[key.strip()] = value
    return found
