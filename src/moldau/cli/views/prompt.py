"""Prompts: a question before something that cannot be undone."""

from __future__ import annotations

import sys

from moldau.cli.views.output import Failure


def confirm(question: str, yes: bool) -> None:
    """Go on only if the person agrees; without an answer nothing happens."""
    if yes:
        return
    sys.stdout.flush()
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    reply = sys.stdin.readline()
    if not reply.endswith("\n"):
        print(file=sys.stderr)
    if reply.strip().lower() not in ("y", "yes"):
        advice = "" if reply else "to skip this question, add --yes"
        raise Failure("nothing was changed", advice)
