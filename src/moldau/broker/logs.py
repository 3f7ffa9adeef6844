"""The log of a process on stderr: lines for people, or JSON for programs.

Both have the same fields: time, level, logger, message, the broker, and whatever a line is given
by name (`extra`): the cause of a stall, the client of a slow request.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Any

import msgspec

_COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}
# The attributes that every record has; all others were given by name.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO  moldau.log  message`, coloured on a terminal.

    What was given by name is in the message, too.
    """

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
    """One JSON object a line; `fields` are the same in every line."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._fields,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure(form: str, level: str, **fields: Any) -> None:
    """Send log lines to stderr: moldau's, and what libraries, Python and threads that fail warn of,
    so that whoever reads lines of JSON finds nothing else. For a process of moldau's alone."""
    handler = logging.StreamHandler(sys.stderr)
    is_terminal = sys.stderr.isatty()
    handler.setFormatter(JsonFormatter(fields) if form == "json" else TextFormatter(is_terminal))
    for name, lowest in (("moldau", level), ("", "WARNING")):
        root = logging.getLogger(name)
        root.handlers[:] = [handler]
        root.setLevel(lowest)
    logging.getLogger("moldau").propagate = False
    logging.captureWarnings(True)
    threading.excepthook = _tell_of_thread


def _tell_of_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is SystemExit:
        return
    name = "?" if failed.thread is None else failed.thread.name
    told = (failed.exc_type, failed.exc_value, failed.exc_traceback)
    logging.getLogger("moldau").error("the thread %s failed", name, exc_info=told)  # type: ignore[arg-type]
