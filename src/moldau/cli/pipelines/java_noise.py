"""The stderr of Java and its Python workers, without the noise."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TRACEBACK = "Traceback (most recent call last):"
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# How our own log lines of JSON begin.
OF_OURS = '{"time":'
MEANINGLESS = ("WARNING: Using incubator modules",)
# A worker that Spark has given up, or never took up: Spark says by itself what matters of that.
OF_CONNECTIONS = (
    "BrokenPipeError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET]",
)


class NoiseFilter:
    """Hands on lines but for tracebacks inside PySpark about lost connections of its workers."""

    def __init__(self, hand_on: Callable[[str], None]) -> None:
        self._hand_on = hand_on
        self._held: list[str] = []
        self._has_dropped = False

    def feed(self, line: str) -> None:
        text = line.rstrip("\n")
        if self._held:
            self._held.append(line)
            # A traceback ends with the first line that is not indented.
            if text and not text[0].isspace():
                self._end_traceback(text)
        elif text == TRACEBACK:
            self._held.append(line)
        elif self._has_dropped and (not text or text.startswith(CHAINED)):
            pass
        elif not text.startswith(MEANINGLESS):
            self._has_dropped = False
            self._hand_on(line)

    def close(self) -> None:
        for line in self._held:
            self._hand_on(line)

    def _end_traceback(self, last: str) -> None:
        held, self._held = self._held, []
        ours = any("moldau" in line for line in held[:-1])
        self._has_dropped = last.startswith(OF_CONNECTIONS) and not ours
        if not self._has_dropped:
            for line in held:
                self._hand_on(line)


def as_log_line(line: str) -> str:
    """Return a line of Java's, or of one of its workers, as a log line of JSON; a blank one is
    left out."""
    if line.isspace():
        return ""
    if line.startswith(OF_OURS):
        return line
    text = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace").rstrip("\n")
    found = {"time": round(time.time(), 3), "level": "warning", "logger": "spark", "message": text}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n"


@contextmanager
def java_noise_dropped(
    form: Callable[[str], str] | None = None, *, everything: bool = False
) -> Iterator[None]:
    """Processes that are started in the block have their stderr filtered for as long as they live.

    What this process writes itself during the block goes the same way. Lines are written in the
    form that `form` gives them; with `everything`, none is dropped.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    read_end, write_end = os.pipe()
    given = (read_end, terminal, form, everything)
    threading.Thread(target=_filter, args=given, daemon=True).start()
    os.dup2(write_end, 2)
    os.close(write_end)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)


def _filter(
    read_end: int, terminal: int, form: Callable[[str], str] | None, everything: bool
) -> None:
    def hand_on(line: str) -> None:
        text = line if form is None else form(line)
        os.write(terminal, text.encode("utf-8", "surrogateescape"))

    noise = NoiseFilter(hand_on)
    with open(read_end, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            if everything:
                hand_on(line)
            else:
                noise.feed(line)
    noise.close()
