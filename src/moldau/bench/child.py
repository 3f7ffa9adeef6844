"""Processes that the bench starts and always ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from moldau.bench.errors import BenchFailed

_LOG_TAIL = 2000
Answer = TypeVar("Answer", bound=msgspec.Struct)

# glibc gives large buffers back to the kernel and faults them in again, page by page: a cost of
# the client's allocator, and several times dearer on virtual machines.
_KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}


class Child:
    """One process with its standard output read line by line; in a session of its own, so that
    Ctrl-C reaches only the bench, which then ends its children in order."""

    def __init__(
        self, words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._words = words
        self._log = log
        self._pending = b""
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self.pid = self._process.pid

    def line(self, timeout_s: float) -> str:
        """Return the next line of its output."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            got = os.read(descriptor, 1 << 20) if ready else b""
            if not got:
                why = "ended" if ready else f"said nothing for {timeout_s} s"
                raise BenchFailed(f"{' '.join(self._words[:4])} {why}:\n{self.log_tail()}")
            self._pending += got
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def answer(self, kind: type[Answer], timeout_s: float) -> Answer:
        """Return the next line, as the JSON of a `kind`."""
        return msgspec.json.decode(self.line(timeout_s), type=kind)

    def say(self, line: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-_LOG_TAIL:]

    def end(self, timeout_s: float, expected: tuple[int, ...] = (0,)) -> None:
        """Ask it to end (SIGTERM) and wait until it has, with one of the `expected` statuses."""
        self._process.terminate()
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchFailed(f"{self._words[0]} still runs {timeout_s} s after SIGTERM") from None
        if status not in expected:
            raise BenchFailed(f"{self._words[0]} ended with {status}:\n{self.log_tail()}")

    def stop(self) -> None:
        """End it at once, if it still runs; whatever it leaves behind is thrown away."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class Children:
    """Everything that the bench has started; leaving the block ends all of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = 0
        self._stack = ExitStack()

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def start(self, words: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        self._started += 1
        with _signals_held_back():
            child = Child(words, self._folder / f"process-{self._started}.log", environment)
            self._stack.callback(child.stop)
        return child

    def begin(self, task: msgspec.Struct) -> Child:
        """Start a load process; its answer is still to come."""
        # The `load` beside the module of tasks: ours, or one outside of the installed package.
        program = f"{type(task).__module__.rpartition('.')[0]}.load"
        text = msgspec.json.encode(task).decode()
        return self.start([sys.executable, "-m", program, text], _KEEP_MEMORY)

    def run(self, task: msgspec.Struct, kind: type[Answer], timeout_s: float = 300) -> Answer:
        """Have a load process do `task` and wait for its answer."""
        child = self.begin(task)
        try:
            return child.answer(kind, timeout_s)
        finally:
            child.stop()


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Ctrl-C and SIGTERM come after the block: a process is started and noted, or not started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda came_now, frame: came.append(came_now))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for missed in came:
            signal.raise_signal(missed)
