"""Truncation: a follower drops what its leader does not have, or starts again empty. Event loop
only.

Where `promises_more` says so, the store's checkpoint must be written before the log grows again.
Otherwise a crash will find less than the recovery point promises, or, once the log has grown beyond
it, recovery will not see where the epochs in between began: it reads only what follows that point.

A log that the disk lets nobody cut to the end is offline: files, indexes and producers no longer
agree on where it ends, and nobody would cut it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moldau.log.errors import CorruptFile, StorageError
from moldau.log.log import Log
from moldau.log.producers.replay import rebuild_producers
from moldau.log.producers.states import ProducerStates
from moldau.log.segments.search import end_before


def promises_more(log: Log, end: int) -> bool:
    """Return whether the checkpoint on disk, or one that is being written, has a recovery point
    beyond this end."""
    return end < max(log.flushed, log.durability.recovery_point)


def truncate_to(log: Log, offset: int) -> None:
    """Drop everything from `offset` on; a batch that holds it goes whole.

    The log then ends with its last batch, which may be before `offset`. Blocks while it reads what
    the producer state is rebuilt from.
    """
    log.commit()
    if offset >= log.log_end:
        log.epochs.truncate_end(log.log_end)
        return
    if offset < log.segments.base:
        restart_at(log, offset)
        return
    segment = log.segments.at(offset)
    position, end = end_before(segment, offset)
    # All that is read comes before the cut: the disk may refuse that for a moment only.
    state = segment.state_before(position, end)
    # Not from a later snapshot: it would not tell of transactions whose markers may still be lost.
    known = log.snapshots.before(min(log.high_watermark, end), log.segments.base)
    log.producers = rebuild_producers(log.segments.all, known, end)
    with _whole_or_offline(log):
        _shrink_to(log, end)
        log.snapshots.remove_above(end)
        log.segments.drop_after(segment)
        segment.forget_aborted(end)
        segment.restore(state)
        # What was cut off comes back after a power failure until this file is forced to disk. A
        # flush of what follows must not leave it out, were it in a segment of its own, and in
        # another life.
        log.flushed = min(log.flushed, max(segment.base, log.log_start))
        log.producers.replicated_to(log.high_watermark)


def restart_at(log: Log, offset: int, log_start: int | None = None) -> None:
    """Drop everything and go on at `offset`, as a follower does that lies too far behind.

    `log_start` is given where the first batch to come holds it, but begins before.
    """
    log.commit()
    with _whole_or_offline(log):
        log.segments.restart(offset)
        _shrink_to(log, offset)
        log.log_start = log.flushed = log.high_watermark = (
            offset if log_start is None else log_start
        )
        log.epochs.truncate_end(0)
        log.snapshots.remove_above(-1)
        log.producers = ProducerStates(offset)
        log.has_aborted = False


@contextmanager
def _whole_or_offline(log: Log) -> Iterator[None]:
    try:
        yield
    except (StorageError, CorruptFile) as error:
        problem = error if isinstance(error, StorageError) else StorageError.of_damage(error)
        log.fail(problem)
        raise problem from None


def _shrink_to(log: Log, log_end: int) -> None:
    log.end_at(log_end)
    log.log_start = min(log.log_start, log_end)
    log.flushed = min(log.flushed, log_end)
    log.high_watermark = min(log.high_watermark, log_end)
    log.clean_end = min(log.clean_end, log_end)
    log.epochs.truncate_end(log_end)
    log.writer.active = None
    log.reader.forget()
    log.truncations += 1
