"""The life of a load process: one task from the command line, one line of JSON as its answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import msgspec

from moldau.bench.errors import BenchFailed, Unavailable


def answer_with(run: Callable[[str], msgspec.Struct]) -> NoReturn:
    """Do the task that the command line has as JSON, print the answer and end this process."""
    try:
        answer = run(sys.argv[1])
    except (BenchFailed, Unavailable) as problem:
        sys.exit(str(problem))
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()
    # librdkafka's threads take a second to wind down; nothing is left to lose.
    os._exit(0)
