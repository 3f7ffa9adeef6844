"""Pages: the sessions and programs that documentation shows, as steps that can be done.

In a `console` block a line with `$ ` is a command, and what follows is what it prints; `...` stands
for anything. The blocks of a page are run in order, in one folder. `moldau broker` and `moldau up`
are started in the background, on free ports that all later commands of the page use.
"""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTED_PORT = 9092
# These need a network or a clone of their own.
NOT_RUN = ("pip install", "make ")


@dataclass(frozen=True)
class Command:
    text: str
    output: str


@dataclass(frozen=True)
class Program:
    text: str


def steps_of(page: str) -> Iterator[Command | Program]:
    """What a reader would do who follows the page from top to bottom."""
    for language, body in BLOCK.findall(page):
        if language == "python":
            yield Program(body)
        if language == "console":
            _, *commands = re.split(r"^\$ ", body, flags=re.MULTILINE)
            for command in commands:
                text, _, output = command.partition("\n")
                if not text.startswith(NOT_RUN):
                    yield Command(text, output)


class Wrong(AssertionError):
    """A page shows something that does not happen."""


class Shell:
    """A person at a terminal whose commands are those of `bin_folder`, and a broker in another one.

    What the broker logs goes to `log`, or where this process logs.
    """

    def __init__(self, folder: Path, bin_folder: Path, log: IO[str] | None = None) -> None:
        self.folder = folder
        self._log = log
        self.address = f"127.0.0.1:{DOCUMENTED_PORT}"
        self.brokers: list[subprocess.Popen[str]] = []
        self.environment = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
        self.environment.pop("MOLDAU_BOOTSTRAP", None)

    def run(self, command: str) -> str:
        if command.startswith("moldau broker"):
            return self._start(f"{command} --listen 127.0.0.1:0")
        if command.startswith("moldau up"):
            return self._start(f"{command} --port {free_port_as_long_as_usual()}")
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if ended.returncode != 0:
            raise Wrong(f"$ {command}\n{ended.stdout}{ended.stderr}")
        return self._as_documented(ended.stdout)

    def _start(self, command: str) -> str:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.brokers.append(process)
        assert process.stdout is not None
        ready = process.stdout.readline()
        self.address = ready.strip().rpartition(" ")[2]
        self.environment["MOLDAU_BOOTSTRAP"] = self.address
        return self._as_documented(ready)

    def _as_documented(self, printed: str) -> str:
        """What is printed when the first broker has its usual port, and the others the next."""
        for number, address in enumerate(self.address.split(",")):
            printed = printed.replace(address, f"127.0.0.1:{DOCUMENTED_PORT + number}")
        return printed

    def do(self, step: Command) -> None:
        """Run a command; Wrong unless it prints what the page shows, if that shows anything."""
        printed = self.run(step.text)
        if step.output and not matches(step.output, printed):
            raise Wrong(f"$ {step.text}\n{printed}")

    def close(self) -> None:
        for process in self.brokers:
            process.terminate()
            process.communicate(timeout=60)
            if process.returncode != 0:
                raise Wrong(f"a broker ended with {process.returncode}")


def free_port_as_long_as_usual() -> int:
    """The first of some free ports in a row; four digits, so that tables look as they should."""
    for port in random.sample(range(2000, 9000, 10), 700):
        with ExitStack() as stack:
            try:
                for each in range(port, port + 10):
                    stack.enter_context(socket.create_server(("127.0.0.1", each)))
            except OSError:
                continue
            return port
    raise Wrong("there are no ten free ports in a row")


def matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None
