"""The log of a command that runs for long: lines for people, or JSON for programs."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.views.output import log_instead


def _known(form: str) -> str:
    if form not in ("text", "json"):
        raise typer.BadParameter("text or json")
    return form


LogFormat = Annotated[
    str,
    typer.Option(
        "--log-format",
        metavar="FORM",
        callback=_known,
        help="Format of log lines: text, or json for programs.",
    ),
]


def log_in(form: str, level: str) -> None:
    """Log to stderr in this form. As JSON, what the command would show there is logged too."""
    from moldau.broker.logs import configure

    configure(form, level)
    if form == "json":
        log_instead("moldau.cli")
