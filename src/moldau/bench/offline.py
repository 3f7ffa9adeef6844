"""Data that is written straight into a stopped broker's folder: the fast way to much of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.store.store import LogStore
from moldau.records.record import Record, build_batch

_OPEN_FILES = 256
_COMMIT_BYTES = 4 << 20


@contextmanager
def open_logs(folder: Path) -> Iterator[LogStore]:
    """Yield the logs of a folder that no broker has open; closed cleanly at the end."""
    store = LogStore(folder, defaults=LogConfig(), max_open_files=_OPEN_FILES)
    store.open()
    try:
        yield store
    finally:
        store.close()


def fill(log: Log, size: int, message_size: int = 1024, batch_bytes: int = 500_000) -> int:
    """Append messages without keys, all the same, until `size` bytes are there; how many."""
    now_ms = time.time_ns() // 1_000_000
    per_batch = max(1, min(batch_bytes, size) // (message_size + 10))
    value = b"m" * message_size
    batch = bytes(build_batch(Record(n, now_ms, None, value, ()) for n in range(per_batch)))
    written = 0
    while written < size:
        log.append(memoryview(bytearray(batch)), 0, now_ms)
        written += len(batch)
        if written % _COMMIT_BYTES < len(batch):
            log.commit()
    log.commit()
    log.advance_high_watermark(log.log_end)
    return log.log_end
