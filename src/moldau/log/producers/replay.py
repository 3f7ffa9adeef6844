"""Replay: rebuilds the state of producers from the batches of a log. Any thread; may block."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.log.producers.states import ProducerStates
from moldau.log.producers.verifications import Verification
from moldau.log.segments.aborted_index import AbortedTransaction
from moldau.log.segments.search import find
from moldau.log.segments.segment import Segment
from moldau.records.batch import BatchHeader, read_header
from moldau.records.record import EndMarker, read_end_marker


def check_coordinator(
    producers: ProducerStates, batch: memoryview, guard: Verification | None
) -> EndMarker | None:
    """May a coordinator write this batch for a producer? The marker in it, if it ends something.

    InvalidProducerEpoch, InvalidTransactionState or CoordinatorFenced if not; sequences are not
    checked.
    """
    header = read_header(batch)
    if not header.is_control:
        producers.check_coordinator(
            header.producer_id, header.producer_epoch, header.is_transactional, guard
        )
        return None
    marker = read_end_marker(batch)
    if marker is not None:
        producers.check_marker(header.producer_id, header.producer_epoch, marker)
    return marker


def note_batch(
    producers: ProducerStates, header: BatchHeader, batch: bytes | memoryview, written_ms: int
) -> AbortedTransaction | None:
    """Let the producer state follow a producer's batch that is in the log since `written_ms`.

    Returns the transaction that it aborts, if it does.
    """
    if header.is_control:
        marker = read_end_marker(batch)
        if marker is None:
            return None
        return producers.note_marker(
            header.producer_id, header.producer_epoch, header.base_offset, written_ms, marker
        )
    producers.note(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_offset,
        header.last_offset_delta,
        header.max_timestamp,
        # What compaction left of a transaction opens none: the marker may be gone.
        header.is_transactional and header.count > 0,
        written_ms,
    )
    return None


def rebuild_producers(
    segments: Sequence[Segment], producers: ProducerStates, end: int, indexed_to: int | None = None
) -> ProducerStates:
    """Bring a snapshot's state up to `end` by reading the batches in between.

    Transactions whose markers lie at `indexed_to` or above are indexed anew if they were aborted.
    When they were written is not among what they say. It was not after the last write to their
    file: so no producer is forgotten early, and none much too late.
    """
    start = producers.end
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base <= start:
            continue
        if not segment.size or segment.base >= end:
            continue
        position, _ = find(segment, start)
        written_ms = segment.batches.written_ms
        for at, header in segment.batches.headers(position, segment.size):
            if header.base_offset >= end:
                break
            if header.producer_id < 0:
                continue
            batch = segment.batches.read(at, header.size) if header.is_control else b""
            aborted = note_batch(producers, header, batch, written_ms)
            if aborted is not None and indexed_to is not None and header.base_offset >= indexed_to:
                segment.note_aborted(aborted)
    producers.end = end
    producers.settle()
    return producers
