"""Loading: reading back what a log of an internal topic says."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from moldau.broker.coordination.records import InvalidRecord
from moldau.log.log import Log
from moldau.records.batch import BatchError, BatchHeader, batches
from moldau.records.record import records_of

logger = logging.getLogger("moldau.coordination")

# How much is read and decoded before the loop serves others again: some milliseconds' worth.
_CHUNK = 64 << 10
_RECORDS_AT_A_TIME = 1_000


async def load(log: Log, take: Callable[[bytes, bytes], None]) -> None:
    """Give `take` what a compacted log says now: the last value of every key not deleted.

    Keys come in the order in which they were first written. A record that `take` finds invalid is
    left out and complained about: one bad record must not take the others with it.
    """
    latest = await _latest(log)
    for count, (key, value) in enumerate(latest.items(), 1):
        if value is not None:
            try:
                take(key, value)
            except InvalidRecord as problem:
                logger.error("%s-%d: skipping a record: %s", log.topic, log.partition, problem)
        if count % _RECORDS_AT_A_TIME == 0:
            await asyncio.sleep(0)


async def _latest(log: Log) -> dict[bytes, bytes | None]:
    """Find the last value of each key; most values are outdated and never decoded."""
    latest: dict[bytes, bytes | None] = {}
    offset, end = log.log_start, log.log_end
    while offset < end:
        found = log.read(offset, _CHUNK, end)
        if found is None:
            break
        data = await asyncio.to_thread(os.pread, found.file.fd, found.size, found.position)
        for position, header in batches(data):
            offset = header.last_offset + 1
            if not header.is_control:
                _collect(latest, data, position, header, log)
    return latest


def _collect(
    latest: dict[bytes, bytes | None], data: bytes, position: int, header: BatchHeader, log: Log
) -> None:
    try:
        for record in records_of(data, position):
            if record.key is not None:
                latest[record.key] = record.value
    except BatchError as problem:
        logger.error(
            "%s-%d: skipping the batch at offset %d: %s",
            log.topic, log.partition, header.base_offset, problem,
        )  # fmt: skip
