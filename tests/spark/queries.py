"""Running queries: waiting for what one of them brings about."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from moldau.testing.waiting import until

WITHIN_S = 120.0


def wait_until(done: Callable[[], bool], query: StreamingQuery) -> None:
    """Return when it is done; fail at once with the query's own problem if that fails."""

    def is_done() -> bool:
        problem = query.exception()
        assert problem is None, str(problem)
        return done()

    until(is_done, "what the query brings about", WITHIN_S)
