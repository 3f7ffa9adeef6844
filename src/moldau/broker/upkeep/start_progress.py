"""The progress of a long start: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import logging
import sys
import time
from typing import Self, TextIO

logger = logging.getLogger("moldau.broker")

_QUIET_S = 1.0
_REDRAW_S = 0.1
_LINE_S = 5.0
_WIDTH = 30


class StartProgress:
    """Told by `LogStore` how many logs are open. Says nothing in the first second.

    Drawn by hand: a broker has no other use for a library that draws.
    """

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._due = time.monotonic() + _QUIET_S
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._is_drawn:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def __call__(self, done: float, logs: int, checked_bytes: int) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        share = done / logs if logs else 1.0
        text = f"{int(done)} of {logs} logs, {checked_bytes / 1e6:.0f} MB checked"
        if not self._is_terminal:
            self._due = now + _LINE_S
            logger.info("opening the data folder: %.0f%%, %s", share * 100, text)
            return
        self._due = now + _REDRAW_S
        self._is_drawn = True
        filled = int(share * _WIDTH)
        bar = "=" * filled + " " * (_WIDTH - filled)
        self._out.write(f"\ropening [{bar}] {share * 100:3.0f}%  {text}\x1b[K")
        self._out.flush()
