"""The worker daemon: Spark forks its Python workers from it, with their modules already loaded.

Each worker would spend half a second on numba and Arrow, and hold them in memory of its own. Worse,
Spark collects garbage after every task, and with all of that loaded it takes 10 to 30 ms each time;
what is frozen before the fork is left alone. Where `moldau.spark.session` made the session, Spark
starts this as `python -m moldau.spark.runtime.worker_daemon WORKER_MODULE`; workers of other
sessions load what they need themselves.
"""

from __future__ import annotations

import gc
import socket
import sys

from pyspark import daemon

READS_AND_WRITES = "pyspark.worker"


def load() -> None:
    """Load what tasks use, and keep it out of the workers' garbage collection."""
    import moldau.spark.source.reading
    import moldau.spark.source.source  # noqa: F401

    gc.freeze()


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


def quiet_worker(sock: socket.socket, authenticated: bool) -> int:
    """Work as Spark's worker does, in the process that was forked for it; called for each task.

    Java closes a connection when it has enough rows, or gives a task up. Over TCP the worker's last
    bytes go nowhere then; over a Unix socket they fail, and Spark would print the stack.
    """
    prompt(sock)
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1


_worker = daemon.worker

if __name__ == "__main__":
    daemon.worker = quiet_worker
    if READS_AND_WRITES in sys.argv[1:]:
        load()
    daemon.manager()
