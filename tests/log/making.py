"""Small ways to make batches and logs, and to read them back."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moldau.log.config import LogConfig
from moldau.log.files.open_files import Slice
from moldau.log.flushes.flushing import prepare_flush
from moldau.log.log import Log
from moldau.log.producers.verifications import Verification
from moldau.log.store.store import LogStore
from moldau.records.batch import BatchHeader, batches, read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch

NOW = 1_700_000_000_000
# Of the leader that batches are copied from.
TERM = 1000
TOPIC_ID = uuid.UUID(int=7)


def batch_of(
    count: int = 1,
    *,
    size: int = 10,
    timestamp: int = NOW,
    key: bytes | None = b"k",
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    is_transactional: bool = False,
) -> memoryview:
    """A batch as a producer sends it, `count` records a millisecond apart."""
    records = [Record(n, timestamp + n, key, bytes([n % 251]) * size) for n in range(count)]
    if producer_id < 0:
        return memoryview(build_batch(records, codec))
    return memoryview(
        build_batch(
            records,
            codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def open_store(folder: Path | str, config: LogConfig | None = None, max_open: int = 50) -> LogStore:
    store = LogStore(folder, defaults=config or LogConfig(), max_open_files=max_open)
    store.open()
    return store


def make_log(store: LogStore, name: str = "t") -> Log:
    return store.create(name, 0, TOPIC_ID)


def guard_of(log: Log, batch: memoryview, *, bumps_epoch: bool = False) -> Verification | None:
    """What a transaction's first batch is appended with; None while the transaction is open."""
    header = read_header(batch)
    producers, producer_id, epoch = log.producers, header.producer_id, header.producer_epoch
    if not header.is_transactional or producers.is_open(producer_id, epoch):
        return None
    return producers.verifications.begin(producer_id, epoch, header.base_sequence, NOW, bumps_epoch)


def put(log: Log, *many: memoryview, epoch: int = 0, now_ms: int = NOW) -> list[int]:
    """Append and commit; the base offsets. Everything written becomes visible."""
    offsets = [log.append(batch, epoch, now_ms, guard=guard_of(log, batch))[0] for batch in many]
    log.commit()
    log.advance_high_watermark(log.log_end)
    return offsets


def force(log: Log) -> None:
    """Force all of it to the disk."""
    flush = prepare_flush(log)
    assert flush is not None
    flush.run()
    flush.done()


def content(piece: Slice) -> bytes:
    data = os.pread(piece.file.fd, piece.size, piece.position)
    assert len(data) == piece.size
    return data


def read_all(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> bytes:
    """Everything from `offset` on, as a sequential reader gets it."""
    out = b""
    at = log.log_start if offset is None else offset
    while (piece := log.read(at, max_bytes, log.log_end)) is not None:
        data = content(piece)
        at = list(batches(data))[-1][1].last_offset + 1
        out += data
    return out


def headers(data: bytes) -> Iterator[BatchHeader]:
    for _, header in batches(data):
        yield header


def offsets_of(log: Log) -> list[int]:
    """The base offsets of all batches that can be read."""
    return [header.base_offset for header in headers(read_all(log))]


def configured(log: Log, **values: Any) -> Log:
    """Give a log other settings."""
    log.config = LogConfig(**values)
    return log
