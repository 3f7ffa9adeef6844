"""Connections of Spark's Python processes to Java: prompt over TCP, and quiet when Java closes one.

Java closes a connection when it has enough rows, gives a task up, or has not needed a process for a
minute. Over TCP the process's last bytes go nowhere then; over a Unix socket they fail, and Spark
prints the stack.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

Worker = Callable[[socket.socket, bool], int]

_DAEMON = "pyspark.daemon"


def quieten_planner() -> None:
    """In a process that Spark's own daemon has forked to plan a source: let its next job be quiet.

    Spark has no setting for the module of this daemon. Such a process calls `worker` of the module
    that it runs for each job, and waits for the next one in there.
    """
    main: Any = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == _DAEMON and not hasattr(main.worker, "__wrapped__"):
        main.worker = quiet(main.worker)


def quiet(worker: Worker) -> Worker:
    """Work as Spark's `worker` does, which is called for each task, but end without a stack."""

    @wraps(worker)
    def quiet_worker(sock: socket.socket, authenticated: bool) -> int:
        prompt(sock)
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    return quiet_worker


def prompt(sock: socket.socket) -> None:
    """Send at once what is written, and acknowledge at once what is read, for one task.

    Both sides of Spark write in small pieces, and the kernel holds back the second until the first
    is acknowledged, which may take 40 ms. The kernel forgets the wish for prompt acknowledgements
    when a process answers, as it does at the end of a task.
    """
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_QUICKACK"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
