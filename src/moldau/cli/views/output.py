"""The output of commands: tables and colours for people, plain text or JSON for programs.

rich is imported on first use, so that commands which print nothing do not pay for it. It leaves out
colours when the output is not a terminal or NO_COLOR is set.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text


BAR_DELAY_S = 1.0

_LEVELS = {"red": logging.ERROR, "yellow": logging.WARNING}

# Who gets what would be shown on stderr, in a process whose log lines are for programs.
_log: logging.Logger | None = None


class Failure(Exception):
    """A command could not do what was asked: what happened, and what to do about it."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, emoji=False, soft_wrap=True)


def log_instead(name: str | None) -> None:
    """Log under this name what would be shown on stderr from here on; None ends that."""
    global _log
    _log = None if name is None else logging.getLogger(name)


def are_logged() -> bool:
    """Return whether lines on stderr are logged instead of shown."""
    return _log is not None


def show(text: str, style: str = "", *, stderr: bool = False, **fields: object) -> None:
    """One line for a person; `style` is rich's and only seen on a terminal.

    Where lines are logged instead, `fields` are the line's own.
    """
    if stderr and _log is not None:
        _log.log(_LEVELS.get(style, logging.INFO), text, extra=fields)
        return
    from rich.text import Text

    console(stderr=stderr).print(Text(text, style))


def show_failure(failure: Failure) -> None:
    if _log is not None:
        advice = {"advice": failure.advice} if failure.advice else {}
        _log.error(failure.message, extra=advice)
        return
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text.assemble(("error: ", "bold red"), failure.message))
    if failure.advice:
        out.print(Text.assemble(("  try: ", "bold"), failure.advice))


def show_json(value: Any) -> None:
    """One JSON value on one line of stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns under a heading; numbers stand right. Nothing is ever cut or wrapped."""
    out = console()
    for line in table_lines(columns, rows):
        out.print(line)


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Text]:
    """Return the lines of a table; a column of numbers, or of nothing but `-`, stands right."""
    from rich.text import Text

    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = [
        bool(column) and all(cell.lstrip("+-").isdigit() or cell == "-" for cell in column)
        for column in (list(zip(*cells, strict=True)) or [()] * len(columns))
    ]

    def line(row: Sequence[str]) -> str:
        placed = zip(row, widths, right, strict=True)
        padded = (cell.rjust(w) if to_right else cell.ljust(w) for cell, w, to_right in placed)
        return "  ".join(padded).rstrip()

    return [Text(line(columns), "bold"), *(Text(line(row)) for row in cells)]


def leave_stdout() -> None:
    """Nobody reads stdout any more: drop what is left, or Python complains when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ProgressBar:
    """A bar on stderr for work that turns out to be long: it appears after a second.

    With `enabled` false it never does. It leaves no trace when the block ends.
    """

    def __init__(
        self, description: str, total: float | None, *, enabled: bool, in_bytes: bool = False
    ) -> None:
        self._description = description
        self._total = total
        self._in_bytes = in_bytes
        self._due = time.monotonic() + BAR_DELAY_S if enabled else float("inf")
        self._bar: Progress | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: float) -> None:
        """Show that `done` of the total is done; cheap enough for every batch of messages."""
        if self._bar is None:
            if time.monotonic() < self._due:
                return
            self._bar = self._start()
        self._bar.update(self._bar.task_ids[0], completed=done)

    def _start(self) -> Progress:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn() if self._in_bytes else MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
        )
        bar.add_task(self._description, total=self._total)
        bar.start()
        return bar
