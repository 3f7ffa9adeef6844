"""The broker's own log on stderr: lines for people, or JSON for programs."""

from __future__ import annotations

import logging
import sys
import time

import msgspec

_COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO  moldau.log  message`, coloured on a terminal."""

    def __init__(self, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        text = f"{clock}.{int(record.msecs):03d} {record.levelname:<7} {record.name}  "
        text += record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        colour = _COLOURS.get(record.levelname) if self._colour else None
        return f"{colour}{text}\x1b[0m" if colour else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure(form: str, level: str) -> None:
    """Send moldau's log lines to stderr; for a process that is a broker and nothing else."""
    handler = logging.StreamHandler(sys.stderr)
    is_terminal = sys.stderr.isatty()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(is_terminal))
    root = logging.getLogger("moldau")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False
