"""Processes of Spark below a driver: what can be killed besides the driver itself."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# The command of the daemon whose children run tasks, and of those children.
WORKERS = "moldau.spark.runtime.worker_daemon pyspark.worker"
SOURCE_RUNNER = "python_streaming_source_runner"
JAVA = "org.apache.spark.deploy.SparkSubmit"


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    command: str


def processes() -> list[Process]:
    """All processes of this machine that have a command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8")
            if command:
                pid, parent, session = int(folder.name), int(fields[1]), int(fields[3])
                found.append(Process(pid, parent, session, command))
    return found


def of_driver(driver: int, words: str = "") -> list[int]:
    """The processes in the session of a driver with these words in their command.

    Not by its process group: Spark's daemons leave that, and take their workers with them.
    """
    return [each.pid for each in processes() if each.session == driver and words in each.command]


def tasks_of(driver: int) -> list[int]:
    """The Python processes that run tasks for a driver, or wait for the next one."""
    daemons = set(of_driver(driver, WORKERS))
    return [each.pid for each in processes() if each.pid in daemons and each.parent in daemons]


def below(ancestor: int, words: str) -> list[int]:
    """The descendants of a process with these words in their command."""
    found = processes()
    parents = {each.pid: each.parent for each in found}

    def is_below(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == ancestor:
                return True
        return False

    return [each.pid for each in found if words in each.command and is_below(each.pid)]


def kill(*pids: int) -> int:
    """kill -9; return how many of them there were to kill."""
    hit = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            hit += 1
    return hit
