"""Following a running pipeline until it has read enough."""

from __future__ import annotations

import threading

from moldau.spark.pipeline.run.progress import SinkProgress
from moldau.spark.pipeline.run.running import Running


def followed(running: Running, rows: int) -> None:
    """Wait until every sink has read as many records."""
    stop = threading.Event()
    seen: dict[str, int] = {}

    def note(progress: SinkProgress) -> None:
        seen[progress.sink] = progress.rows
        if len(seen) == len(running.queries) and min(seen.values()) >= rows:
            stop.set()

    waiting = threading.Timer(300, stop.set)
    waiting.start()
    try:
        running.wait(stop=stop, on_progress=note)
    finally:
        waiting.cancel()
    assert min(seen.values()) >= rows
