"""The `moldau` command.

`moldau broker` takes a short cut past the command-line framework, whose import costs more than the
broker's own start. What the short cut does not understand (a mistake, `--help`) goes the long way,
which has the full help and error texts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit status: 0 done, 1 failed, 2 wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["broker"]:
        from moldau.cli.commands.broker import parse_flags, run_broker

        flags = parse_flags(words[1:])
        if flags is not None:
            return run_broker(flags)

    from moldau.cli.app import run

    return run(words)
