"""The seams: where the product meets clocks, randomness, files, threads and ZooKeeper.

The product takes all of them from a few modules of Python's library. While a simulation is
installed, the product's modules, and nobody else's, see the simulation's in their place: each
global of theirs that is one of the originals is replaced, and put back afterwards.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import mmap
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec

import moldau.cluster.clock
import moldau.cluster.zookeeper.sessions.session
from moldau.cluster.zookeeper.sessions.client import new_client
from moldau.log.compaction.compactor import compact
from moldau.log.compaction.job import Job
from moldau.wire.messages import is_loaded, load
from tests.simulation.core.loop import VirtualLoop
from tests.simulation.core.process import EPOCH_S, ProcessDied
from tests.simulation.disk.system import System

_PARTS = ("records", "log", "wire", "peer", "cluster", "broker")
# Its thread only watches for stalls, which virtual time has none of.
_IDLE_THREADS = frozenset(("moldau-stalls",))


class Clock:
    """The module `time`, for the process whose step is running."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return self._loop.now_s + 1000.0

    perf_counter = monotonic

    def clock_gettime(self, clock: int) -> float:
        return self._loop.now_s + 1000.0

    def thread_time(self) -> float:
        return 0.0

    def time(self) -> float:
        return EPOCH_S + self._loop.now_s + self._loop.process.machine.skew_s

    def time_ns(self) -> int:
        return int(self.time() * 1e9)


class Threads:
    """The module `threading`: a thread runs in one piece, some time after its start."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def Thread(
        self, target: Callable[..., None], args: tuple[Any, ...] = (), name: str = "", **more: Any
    ) -> _Thread:
        return _Thread(self._loop, lambda: target(*args), name)


class _Thread:
    def __init__(self, loop: VirtualLoop, work: Callable[[], None], name: str) -> None:
        self._loop = loop
        self._work: Callable[[], None] | None = None if name in _IDLE_THREADS else work

    def start(self) -> None:
        self._loop.call_later(self._loop._random() * 0.01, self.join)

    def join(self) -> None:
        """Do it now, if that has not happened."""
        work, self._work = self._work, None
        if work is not None:
            work()


class InlineExecutor:
    """A pool of threads that does everything when it is told to."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """There are no threads."""

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *problem: object) -> None:
        """Nothing is running."""

    def shutdown(self, *arguments: Any, **options: Any) -> None:
        """Nothing is running."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except ProcessDied:
            raise
        except BaseException as problem:
            future.set_exception(problem)
        return future


class CompactionWorker:
    """The one kind of program that brokers start: it does its job at once, on the same disk."""

    returncode = 0

    def __init__(self, command: list[str], **pipes: Any) -> None:
        assert command[-1] == "moldau.log.compaction.worker", command

    def __enter__(self) -> CompactionWorker:
        return self

    def __exit__(self, *problem: object) -> None:
        """It has ended."""

    def communicate(self, job: bytes) -> tuple[bytes, bytes]:
        return msgspec.json.encode(compact(msgspec.json.decode(job, type=Job))), b""

    def terminate(self) -> None:
        """It has ended."""


class Schemas:
    """The schemas of messages that a process has loaded: none at its start, whatever ran before."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def is_loaded(self, api: int, version: int) -> bool:
        return (api, version) in self._loop.process.schemas

    def load(self, api: int, version: int) -> None:
        load(api, version)
        self._loop.process.schemas.add((api, version))


def _modules() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        first, _, rest = name.partition(".")
        if first == "moldau" and rest.partition(".")[0] in _PARTS:
            yield module


@contextmanager
def installed(
    loop: VirtualLoop, system: System, seed: str, connect: Callable[..., tuple[Any, Any]]
) -> Iterator[None]:
    """Let the product's modules see the simulation; `connect` makes its clients of ZooKeeper."""
    clock, schemas = Clock(loop), Schemas(loop)
    files = SimpleNamespace(flock=system.flock, LOCK_EX=fcntl.LOCK_EX, LOCK_NB=fcntl.LOCK_NB)
    maps = SimpleNamespace(mmap=system.map)
    folders = SimpleNamespace(rmtree=system.rmtree)
    programs = SimpleNamespace(Popen=CompactionWorker, PIPE=subprocess.PIPE)
    replacements: dict[int, Any] = {
        id(subprocess): programs,
        id(time): clock,
        id(os): system,
        id(threading): Threads(loop),
        id(mmap): maps,
        id(fcntl): files,
        id(shutil): folders,
        id(ThreadPoolExecutor): InlineExecutor,
        id(time.monotonic): clock.monotonic,
        id(time.time_ns): clock.time_ns,
        id(moldau.cluster.clock.now): clock.monotonic,
        id(new_client): connect,
        id(is_loaded): schemas.is_loaded,
        id(load): schemas.load,
    }
    saved: list[tuple[dict[str, Any], str, Any]] = []
    for module in _modules():
        names = vars(module)
        for name, value in list(names.items()):
            if not name.startswith("__") and id(value) in replacements:
                # mmap.mmap is also a type that the product asks values for.
                if value is mmap and module.__name__.endswith("record_check"):
                    continue
                saved.append((names, name, value))
                names[name] = replacements[id(value)]
        if "open" not in names and module.__name__.startswith(("moldau.log", "moldau.cluster")):
            saved.append((names, "open", None))
            names["open"] = system.open_file
    uuid_os, uuid.os = uuid.os, system  # type: ignore[attr-defined]
    state = random.getstate()
    random.seed(seed)
    root = logging.getLogger("moldau")
    was = root.handlers[:], root.level, root.propagate
    try:
        yield
    finally:
        for names, name, value in reversed(saved):
            if value is None:
                del names[name]
            else:
                names[name] = value
        uuid.os = uuid_os  # type: ignore[attr-defined]
        random.setstate(state)
        root.handlers[:], root.level, root.propagate = was
        asyncio.set_event_loop(None)
