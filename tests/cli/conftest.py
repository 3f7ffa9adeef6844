"""Commands against a broker that all of these tests share; each takes topics of its own."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from moldau.cli import main
from moldau.cli.views.output import log_instead
from moldau.testing import Broker


@dataclass(frozen=True)
class Ended:
    """A command that ran, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ended]

# For messages that only have to be there: without this, librdkafka's producer is idempotent, and
# takes half a second to get its id.
QUICKLY = ("--acks", "1")


@pytest.fixture
def moldau(moldau_session_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `moldau WORDS...`, against the shared broker unless the words say otherwise.

    In this process, which saves the start of an interpreter each time. That the same works in a
    process of its own is seen in the tests of the documentation.
    """

    def run(*words: str, typed: str = "") -> Ended:
        with monkeypatch.context() as patch:
            patch.setenv("MOLDAU_BOOTSTRAP", moldau_session_broker.bootstrap)
            patch.setattr(sys, "stdin", stream(typed.encode()))
            patch.setattr(sys, "stdout", out := stream())
            patch.setattr(sys, "stderr", err := stream())
            with logging_restored():
                status = main(words)
            return Ended(status, content(out), content(err))

    return run


@contextmanager
def logging_restored() -> Iterator[None]:
    """Undo in the end what a command does to the log of the process that it believes its own."""
    loggers = [logging.getLogger(name) for name in ("moldau", "")]
    before = [(each.handlers[:], each.level, each.propagate) for each in loggers]
    hook = threading.excepthook
    try:
        yield
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
            logger.setLevel(level)
            logger.propagate = propagate
        threading.excepthook = hook
        logging.captureWarnings(False)
        log_instead(None)


def stream(content: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")


def content(written: io.TextIOWrapper) -> str:
    written.flush()
    written.seek(0)
    return written.read()


@pytest.fixture
def topic(moldau_session_broker: Broker) -> str:
    """The name of a fresh topic with three partitions."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    moldau_session_broker.create_topic(name, partitions=3)
    return name


@pytest.fixture
def fresh_name() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"
