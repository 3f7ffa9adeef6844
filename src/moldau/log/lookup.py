"""Look-ups that read batches: by time, and to check one. Any thread; may block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from moldau.log.errors import CorruptLog, StorageError
from moldau.log.log import Log
from moldau.log.segments.search import find
from moldau.log.segments.segment import Segment
from moldau.records.batch import BatchError, BatchHeader, check_batch
from moldau.records.record import Record, records_of

logger = logging.getLogger("moldau.log")

# offset, timestamp, leader epoch
Found = tuple[int, int, int]


def offset_for_time(log: Log, timestamp_ms: int) -> Found | None:
    """(offset, timestamp, leader epoch) of the first record at or after that time.

    Exact inside batches, so it decompresses.
    """
    return _look_up(log, partial(_offset_for_time, timestamp_ms))


def max_timestamp(log: Log) -> Found | None:
    """(offset, timestamp, leader epoch) of the first record with the largest timestamp."""
    return _look_up(log, _max_timestamp)


def time_at(log: Log, offset: int) -> int | None:
    """Return when the batch that holds `offset`, or the next one, was written; None if there is
    none.
    """
    found = _look_up(log, partial(_time_at, offset))
    return None if found is None else found[1]


def written_ms(header: BatchHeader) -> int:
    """Return when a batch was written, by its header alone: the time of its first record, or the
    broker's where the topic asks for it."""
    return header.max_timestamp if header.uses_append_time else header.base_timestamp


def verify(log: Log, offset: int) -> None:
    """CorruptLog, and offline, if the batch that holds `offset` is not what was written."""
    _look_up(log, partial(_check_batch_at, offset))


def _look_up(log: Log, search: Callable[[Sequence[Segment], int], Found | None]) -> Found | None:
    while True:
        if log.offline is not None:
            raise log.offline
        segments, truncations = log.segments.all, log.truncations
        try:
            return search(segments, log.log_start)
        except StorageError as error:
            # The log may have been changed under a search on a thread.
            if segments == log.segments.all and truncations == log.truncations:
                log.read_failed(error)
                raise


def _time_at(offset: int, segments: Sequence[Segment], log_start: int) -> Found | None:
    offset = max(offset, log_start)
    first = next((n for n in reversed(range(len(segments))) if segments[n].base <= offset), 0)
    for segment in segments[first:]:
        position, _ = find(segment, offset)
        for _, header in segment.batches.headers(position, segment.size):
            return header.base_offset, written_ms(header), header.leader_epoch
    return None


def _check_batch_at(offset: int, segments: Sequence[Segment], log_start: int) -> None:
    segment = next((each for each in reversed(segments) if each.base <= offset), None)
    if segment is None:
        return
    position, _ = find(segment, offset)
    for at, header in segment.batches.headers(position, segment.size):
        try:
            check_batch(segment.batches.read(at, header.size), from_producer=False)
        except BatchError as error:
            raise CorruptLog(segment.path, at, str(error)) from error
        return


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    try:
        yield from records_of(segment.batches.read(position, header.size))
    except BatchError as error:
        # Records are not decoded when they are produced, so a producer may have stored nonsense.
        logger.warning("%s at position %d: %s", segment.path, position, error)


def _offset_for_time(
    timestamp_ms: int, segments: Sequence[Segment], log_start: int
) -> Found | None:
    for segment in segments:
        if not segment.size or segment.largest_timestamp < timestamp_ms:
            continue
        # No batch up to the entry's offset is as new as we seek, so begin there.
        _, offset = segment.time_index.lookup(timestamp_ms - 1)
        position, _ = find(segment, max(offset, log_start))
        for at, header in segment.batches.headers(position, segment.size):
            if header.max_timestamp < timestamp_ms or header.last_offset < log_start:
                continue
            for record in _records(segment, at, header):
                if record.timestamp >= timestamp_ms and record.offset >= log_start:
                    return record.offset, record.timestamp, header.leader_epoch
    return None


def _max_timestamp(segments: Sequence[Segment], log_start: int) -> Found | None:
    newest: tuple[int, Segment, int, BatchHeader] | None = None
    for segment in segments:
        if not segment.size:
            continue
        segment.load_indexes()
        if newest is not None and segment.max_timestamp <= newest[0]:
            continue
        position, _ = find(segment, max(segment.max_timestamp_offset, log_start))
        for at, header in segment.batches.headers(position, segment.size):
            if header.count and (newest is None or header.max_timestamp > newest[0]):
                newest = (header.max_timestamp, segment, at, header)
            if header.max_timestamp == segment.max_timestamp:
                break
    if newest is None:
        return None
    timestamp, segment, at, header = newest
    for record in _records(segment, at, header):
        if record.timestamp == timestamp and record.offset >= log_start:
            return record.offset, timestamp, header.leader_epoch
    return header.last_offset, timestamp, header.leader_epoch
