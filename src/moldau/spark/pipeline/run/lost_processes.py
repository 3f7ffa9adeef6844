"""Python processes of Spark that were lost under a query: not started in time, or ended.

Spark starts one to ask a source for its offsets, and gives it ten seconds to connect; others run
tasks. When one ends, what Spark says is what it met on the socket, or nothing at all. None of that
is about the query itself, which can be started again and goes on from its checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

NOT_CONNECTED = "Python worker failed to connect back"
# Spark's messages about a task's process that has ended, and about the daemon that forks them.
TASK_ENDED = ("Python worker exited unexpectedly", "java.io.IOException: Stream closed")
# Part of the names of Spark's classes that talk to the process of a source.
SOURCE_RUNNER = "PythonStreamingSourceRunner"
SOCKET_CLOSED = ("java.io.EOFException", "java.io.IOException", "java.net.SocketException")

KILLED = "it was killed, or ran out of memory"


def lost_process(query: StreamingQuery, failure: BaseException | None = None) -> str | None:
    """Return which process was lost, if that is why the query has failed.

    `failure` is what the writing of its batch raised, if anything.
    """
    problem = failure or query.exception()
    if problem is None:
        return None
    text = str(problem)
    if NOT_CONNECTED in text:
        return "a Python process of Spark did not start within ten seconds: the machine is too busy"
    if any(words in text for words in TASK_ENDED):
        return f"a Python process that runs tasks has ended: {KILLED}"
    if failure is None and _is_runner_lost(query):
        return f"the Python process that asks the source for its offsets has ended: {KILLED}"
    return None


def _is_runner_lost(query: StreamingQuery) -> bool:
    found: Any = query._jsq.exception()
    cause = found.get() if found.isDefined() else None
    while cause is not None:
        if str(cause.getClass().getName()) in SOCKET_CLOSED:
            return any(SOURCE_RUNNER in str(each) for each in cause.getStackTrace())
        cause = cause.getCause()
    return False
