"""Threads: streams that any thread of a driver may start.

Spark looks for a format that is written in Python in the session that is active in the calling
thread. It does not make a frame's own session active where it starts a stream, so other threads
than the one that made the session would not find the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Have the session active in this thread for a while.

    A thread that had another gets it back. One that had none keeps this one, for its reads and
    single writes.
    """
    sessions = _sessions(spark)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())


def _with_session(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    def started(writer: Any, *args: Any, **options: Any) -> Any:
        with active(writer._spark):
            return start(writer, *args, **options)

    return started
