"""A listener that knows how far streams are behind.

Spark's own Kafka source has that among its metrics; Spark asks a source in Python for none, but
reports its offsets, from which this works it out.
"""

from __future__ import annotations

import threading
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark.source.behind import Lag, lag_of


class LagListener(StreamingQueryListener):
    """Keeps the latest figures of every query of a session.

    listener = LagListener()
    spark.streams.addListener(listener)
    ...
    listener.lags(query)[0].most
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._lags: dict[str, list[Lag]] = {}

    def lags(self, query: StreamingQuery | str) -> list[Lag]:
        """Return the figures of each topic source of a query, or of one with this id or name."""
        key = query if isinstance(query, str) else str(query.id)
        with self._lock:
            return list(self._lags.get(key, ()))

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        lags = [lag_of(source.endOffset, source.latestOffset) for source in progress.sources]
        found = [lag for lag in lags if lag is not None]
        with self._lock:
            for key in filter(None, (str(progress.id), progress.name)):
                self._lags[key] = found

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            self._lags.pop(str(event.id), None)
