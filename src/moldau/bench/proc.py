"""Processes as the kernel sees them: CPU time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from moldau.bench.errors import BenchFailed

_MIB = 1024 * 1024
_QUIET_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.1


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process, past and present.

    The clock id is what clock_getcpuclockid(3) gives on Linux: the figure of /proc/PID/stat, in
    nanoseconds rather than hundredths of a second.
    """
    return time.clock_gettime((~pid << 3) | 2)


def wait_quiet(pids: Iterable[int], share: float = 0.04) -> None:
    """Wait until each of these uses less than that share of a core, on average.

    So that one sample's upkeep (deleting a topic's files, say) is not counted into the next.
    """
    watched = tuple(pids)
    deadline = time.monotonic() + _QUIET_WITHIN_S
    while time.monotonic() < deadline:
        before, since = sum(map(cpu_seconds, watched)), time.monotonic()
        time.sleep(0.1)
        used = sum(map(cpu_seconds, watched)) - before
        if used < share * len(watched) * (time.monotonic() - since):
            return
    raise BenchFailed(f"still busy after {_QUIET_WITHIN_S:g} s without load")


def bytes_read(pid: int) -> int:
    """Bytes that a process has taken in through read calls (rchar)."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    return 0


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident memory now (VmRSS) and at its highest (VmHWM)."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    now, highest = (int(fields[name].split()[0]) * 1024 / _MIB for name in ("VmRSS", "VmHWM"))
    return now, highest


def tree_cpu_seconds() -> float:
    """Return the same of this process and all that descend from it and still run."""
    total = 0.0
    for pid in _tree():
        with suppress(OSError):
            total += cpu_seconds(pid)
    return total


@contextmanager
def highest_memory() -> Iterator[list[float]]:
    """Yield a list of one figure: the most memory in MiB that these processes had together.

    What they share counts once. It is looked at ten times a second, so a short peak may be missed.
    """
    highest, is_over = [_tree_memory_mib()], Event()

    def watch() -> None:
        while not is_over.wait(_LOOK_EVERY_S):
            highest[0] = max(highest[0], _tree_memory_mib())

    watching = Thread(target=watch, name="memory", daemon=True)
    watching.start()
    try:
        yield highest
    finally:
        is_over.set()
        watching.join()


def _tree_memory_mib() -> float:
    total = 0
    for pid in _tree():
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / _MIB


def _tree() -> Iterator[int]:
    """Yield this process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        waiting += parents.get(pid, ())
        yield pid
