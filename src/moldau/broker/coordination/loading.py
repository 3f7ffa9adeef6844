"""Loading: reading back what a log of an internal topic says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from operator import itemgetter

from moldau.broker.coordination.records import InvalidRecord
from moldau.log.log import Log
from moldau.records.batch import BatchError, BatchHeader, batches
from moldau.records.record import read_end_marker, records_of

logger = logging.getLogger("moldau.coordination")

# How much is read and decoded before the loop serves others again: some milliseconds' worth.
_CHUNK = 64 << 10
_RECORDS_AT_A_TIME = 1_000


class Contents:
    """What a compacted log says, as its batches are read in their order.

    What a transaction wrote counts once its commit marker is there, unless the key was written
    after it meanwhile: the order is that of the records, not of the markers, since compaction knows
    no other. `open` has what transactions without a marker wrote, by producer id and key: where,
    and the value, None if it was written over; nothing of a key that was deleted after it.
    """

    __slots__ = ("latest", "open")

    def __init__(self) -> None:
        self.latest: dict[bytes, bytes | None] = {}
        self.open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}

    def take(self, data: bytes, position: int, header: BatchHeader) -> None:
        """Take in one batch; BatchError if it cannot be read."""
        if header.is_control:
            marker = read_end_marker(data, position)
            if marker is not None:
                self._end(header.producer_id, marker.commits)
        elif header.is_transactional:
            written = self.open.setdefault(header.producer_id, {})
            for key, value in _records(data, position):
                written[key] = header.base_offset, value
        else:
            for key, value in _records(data, position):
                self.latest[key] = value
                if self.open and value is None:
                    for written in self.open.values():
                        written.pop(key, None)
                elif self.open:
                    self._outdate(key, header.base_offset)

    def _end(self, producer_id: int, commits: bool) -> None:
        written = self.open.pop(producer_id, {})
        for key, (offset, value) in written.items():
            if commits and value is not None:
                self.latest[key] = value
                self._outdate(key, offset)

    def _outdate(self, key: bytes, before: int) -> None:
        for written in self.open.values():
            if key in written and written[key][0] < before:
                written[key] = written[key][0], None


def _records(data: bytes, position: int) -> Iterator[tuple[bytes, bytes | None]]:
    for record in records_of(data, position):
        if record.key is not None:
            yield record.key, record.value


async def load(
    log: Log,
    take: Callable[[bytes, bytes], None],
    take_open: Callable[[int, bytes, bytes | None], None],
) -> None:
    """Give `take` what a compacted log says now: the last value of every key not deleted.

    `take_open` is given what transactions wrote that are still open, with their producer ids, or
    None for a value that somebody else has written over.

    Keys come in the order in which they were first written. A record that is found invalid is left
    out and complained about: one bad record must not take the others with it.
    """
    contents = await _read(log)
    for count, (key, value) in enumerate(contents.latest.items(), 1):
        if value is not None:
            with _complaining(log):
                take(key, value)
        if count % _RECORDS_AT_A_TIME == 0:
            await asyncio.sleep(0)
    still_open = [
        (offset, producer_id, key, value)
        for producer_id, written in contents.open.items()
        for key, (offset, value) in written.items()
    ]
    for _, producer_id, key, value in sorted(still_open, key=itemgetter(0)):
        with _complaining(log):
            take_open(producer_id, key, value)


async def replay(log: Log, take: Callable[[int, bytes, bytes | None], None]) -> None:
    """Give `take` every record of a log that is not compacted, in order, with its offset.

    What is invalid is left out and complained about, as `load` does. There are no transactions.
    """

    def take_all(data: bytes, position: int, header: BatchHeader) -> None:
        for record in records_of(data, position):
            if record.key is not None:
                with _complaining(log):
                    take(record.offset, record.key, record.value)

    await _read_batches(log, take_all)


async def _read(log: Log) -> Contents:
    """Find the last value of each key; most values are outdated and never decoded."""
    contents = Contents()
    await _read_batches(log, contents.take)
    return contents


async def _read_batches(log: Log, take: Callable[[bytes, int, BatchHeader], None]) -> None:
    offset, end = log.log_start, log.log_end
    while offset < end:
        found = log.read(offset, _CHUNK, end)
        if found is None:
            break
        data = await asyncio.to_thread(os.pread, found.file.fd, found.size, found.position)
        for position, header in batches(data):
            offset = header.last_offset + 1
            try:
                take(data, position, header)
            except BatchError as problem:
                logger.error(
                    "%s-%d: skipping the batch at offset %d: %s",
                    log.topic, log.partition, header.base_offset, problem,
                )  # fmt: skip


@contextlib.contextmanager
def _complaining(log: Log) -> Iterator[None]:
    try:
        yield
    except InvalidRecord as problem:
        logger.error("%s-%d: skipping a record: %s", log.topic, log.partition, problem)
