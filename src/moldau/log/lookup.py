"""Searches that read batches: by time, and for the state of producers. Any thread; may block."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from moldau.log.errors import CorruptLog
from moldau.log.producers.states import ProducerStates
from moldau.log.segments.segment import Segment
from moldau.records.batch import BatchError, BatchHeader, check_batch
from moldau.records.record import Record, read_end_marker, records_of

logger = logging.getLogger("moldau.log")


def check_batch_at(offset: int, segments: Sequence[Segment], log_start: int) -> None:
    """CorruptLog unless the batch that holds `offset` is what was once written."""
    segment = next((each for each in reversed(segments) if each.base <= offset), None)
    if segment is None:
        return
    position, _ = segment.find(offset)
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


def offset_for_time(
    timestamp_ms: int, segments: Sequence[Segment], log_start: int
) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record at or after that time."""
    for segment in segments:
        if not segment.size or segment.largest_timestamp < timestamp_ms:
            continue
        # No batch up to the entry's offset is as new as we seek, so begin there.
        _, offset = segment.time_index.lookup(timestamp_ms - 1)
        position, _ = segment.find(max(offset, log_start))
        for at, header in segment.batches.headers(position, segment.size):
            if header.max_timestamp < timestamp_ms or header.last_offset < log_start:
                continue
            for record in _records(segment, at, header):
                if record.timestamp >= timestamp_ms and record.offset >= log_start:
                    return record.offset, record.timestamp, header.leader_epoch
    return None


def max_timestamp(segments: Sequence[Segment], log_start: int) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record with the largest timestamp."""
    newest: tuple[int, Segment, int, BatchHeader] | None = None
    for segment in segments:
        if not segment.size:
            continue
        segment.load_indexes()
        if newest is not None and segment.max_timestamp <= newest[0]:
            continue
        position, _ = segment.find(max(segment.max_timestamp_offset, log_start))
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


def note_batch(
    producers: ProducerStates, header: BatchHeader, batch: bytes | memoryview, written_ms: int
) -> None:
    """Let the producer state follow a batch that is in the log since `written_ms`."""
    if header.producer_id < 0:
        return
    if header.is_control:
        marker = read_end_marker(batch)
        if marker is not None:
            producers.note_marker(
                header.producer_id,
                header.producer_epoch,
                header.base_offset,
                written_ms,
                marker,
            )
        return
    producers.note(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_offset,
        header.last_offset_delta,
        header.max_timestamp,
        header.is_transactional,
        written_ms,
    )


def rebuild_producers(
    segments: Sequence[Segment], producers: ProducerStates, end: int
) -> ProducerStates:
    """Bring a snapshot's state up to `end` by reading the batches in between.

    When they were written is not among what they say. It was not after the last write to their
    file: so no producer is forgotten early, and none much too late.
    """
    start = producers.end
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base <= start:
            continue
        if not segment.size or segment.base >= end:
            continue
        position, _ = segment.find(start)
        written_ms = segment.batches.written_ms
        for at, header in segment.batches.headers(position, segment.size):
            if header.base_offset >= end:
                break
            if header.producer_id < 0:
                continue
            batch = segment.batches.read(at, header.size) if header.is_control else b""
            note_batch(producers, header, batch, written_ms)
    producers.end = end
    producers.settle()
    return producers
