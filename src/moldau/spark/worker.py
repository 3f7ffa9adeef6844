"""The Python processes in which Spark runs tasks, one after another."""

from __future__ import annotations

import gc
import os

from pyspark import TaskContext

_settled = 0


def settle() -> None:
    """Keep what is loaded by now out of garbage collection; only in a worker, and only once.

    Spark collects garbage after every task. With numba and Arrow loaded that walks through half a
    million objects that never go, 30 ms each time: more than a small task itself takes.
    """
    global _settled
    if _settled != os.getpid() and TaskContext.get() is not None:
        gc.freeze()
        _settled = os.getpid()
