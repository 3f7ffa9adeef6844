"""The Python processes in which Spark runs tasks, one after another."""

from __future__ import annotations

import gc
import os

from pyspark import TaskContext

# A worker is forked, and begins with what its parent counted.
_counted_in = 0
_tasks = 0


def settle() -> None:
    """Keep what is loaded by now out of garbage collection; at the start of a task, in a worker.

    Spark collects garbage after every task. With numba and Arrow loaded that walks through half a
    million objects that never go, 30 ms each time: more than a small task itself takes. The first
    task loads what is needed besides, from compiled kernels to the protocol's classes, so the
    second settles once more.
    """
    global _counted_in, _tasks
    if TaskContext.get() is None:
        return
    if _counted_in != os.getpid():
        _counted_in, _tasks = os.getpid(), 0
    _tasks += 1
    if _tasks <= 2:
        gc.freeze()
