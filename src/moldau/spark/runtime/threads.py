"""Threads: streams that any thread of a driver may start.

Spark looks for a format that is written in Python in the session that is active in the calling
thread. It does not make a frame's own session active where it starts a stream, so other threads
than the one that made the session would not find the format.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STARTS = ("start", "toTable")


@cache
def start_in_any_thread() -> None:
    """Let streams of this process start with their own session active in the calling thread."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    for name in _STARTS:
        setattr(DataStreamWriter, name, _with_session(getattr(DataStreamWriter, name)))


def activate(spark: SparkSession) -> None:
    """Make the session the active one of this thread, as Spark does in `createDataFrame`."""
    _sessions(spark).setActiveSession(spark._jsparkSession)


def _sessions(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return type(spark)._get_j_spark_session_class(jvm)


def _with_session(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    def started(writer: Any, *args: Any, **options: Any) -> Any:
        sessions = _sessions(writer._spark)
        before = sessions.getActiveSession()
        activate(writer._spark)
        try:
            return start(writer, *args, **options)
        finally:
            # Another session that registers a format of the same name would be told of this one.
            # A thread that had none keeps this one, for its reads and single writes.
            if before.isDefined():
                sessions.setActiveSession(before.get())

    return started
