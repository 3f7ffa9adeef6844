"""The Spark session that pipelines of one process share, made anew when its Java has ended."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def active_session() -> SparkSession | None:
    """Return the session that this process has."""
    # Where pyspark is not even loaded, there is no session; and it may not be installed.
    loaded = sys.modules.get("pyspark.sql")
    return None if loaded is None else loaded.SparkSession.getActiveSession()


class Sessions:
    """One session at a time. Any thread may ask for it.

    One that was there before is used, and left there at the end.
    """

    def __init__(self, make: Callable[[], SparkSession]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._current = self._found = active_session()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()

    def get(self) -> SparkSession:
        """Return the session, or another one if it can do nothing any more."""
        with self._lock:
            if self._current is not None and not _is_alive(self._current):
                _forget(self._current)
                self._current = None
            if self._current is None:
                self._current = self._make()
            return self._current

    def stop(self) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        with self._lock:
            # The signal that ends this process may also have ended Java.
            with suppress(Py4JError, OSError):
                if self._current is not None and self._current is not self._found:
                    self._current.stop()
            self._current = None


def _is_alive(spark: SparkSession) -> bool:
    from py4j.protocol import Py4JError

    context: Any = spark.sparkContext._jsc
    try:
        return context is not None and not context.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _forget(spark: SparkSession) -> None:
    """Let pyspark start Java again: it holds on to the process that it has started first."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    gateway = context._gateway
    with suppress(Py4JError, OSError):
        spark.stop()
    if gateway is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
    context._gateway = context._jvm = context._active_spark_context = None
    sessions: Any = SparkSession
    sessions._instantiatedSession = sessions._activeSession = None
