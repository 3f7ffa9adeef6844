"""Groups with members and offsets, for tests of commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from moldau.testing import Broker
from tests.cli.conftest import QUICKLY, Run


class MemberProcess:
    """`moldau consume --group` in a process of its own, read by a thread."""

    def __init__(self, broker: Broker, topic: str, group: str, *words: str) -> None:
        command = ["consume", topic, "--group", group, "--bootstrap", broker.bootstrap, *words]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moldau", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.said: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.said)),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))

    def end(self, number: int = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(60)
        for thread in self._threads:
            thread.join(60)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status


@contextmanager
def member(broker: Broker, topic: str, group: str, *words: str) -> Iterator[MemberProcess]:
    started = MemberProcess(broker, topic, group, *words)
    try:
        yield started
    finally:
        started.end(signal.SIGKILL)


def produce(moldau: Run, topic: str, first: int, last: int, *words: str) -> list[str]:
    lines = [str(number) for number in range(first, last)]
    typed = "".join(f"{line},{line}\n" for line in lines)
    words = ("--key-separator", ",", *QUICKLY, *words)
    assert moldau("produce", topic, *words, typed=typed).status == 0
    return lines


def take(moldau: Run, topic: str, group: str, *words: str) -> list[str]:
    ended = moldau("consume", topic, "--group", group, "--from-beginning", *words)
    assert ended.status == 0, ended.err
    return ended.out.splitlines()


def describe(moldau: Run, group: str, *words: str) -> dict[str, Any]:
    view: dict[str, Any] = moldau("groups", "describe", group, "--json", *words).json
    return view


def has_members(moldau: Run, group: str, count: int, *words: str) -> bool:
    view = moldau("groups", "describe", group, "--json", *words)
    if view.status != 0:
        return False
    owned = [member for member in view.json["members"] if member["partitions"]]
    return view.json["state"] == "stable" and len(owned) == count


def stamped(places: list[tuple[int, int]]) -> str:
    """JSON lines for messages in a partition that were written so many seconds ago."""
    now_ms = int(time.time() * 1000)
    lines = [
        {"partition": partition, "value": "x", "timestamp": now_ms - 1000 * seconds}
        for partition, seconds in places
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)
