"""Prewriting: a thread writes the records of a large batch before it is appended."""

from __future__ import annotations

from moldau.log.errors import StorageError
from moldau.log.log import Log
from moldau.log.segments.batch_file import Buffer
from moldau.log.segments.prewrite import Prewrite


def begin_prewrite(log: Log, batch: Buffer, now_ms: int) -> Prewrite | None:
    """Make room for a large batch that is to be appended soon. Event loop only.

    Whoever gets the prewrite runs it, appends the same buffer, commits, and calls `end`, also where
    it appended nothing. Whatever else is written to the log meanwhile, or done to it, puts an end
    to the prewrite: the commit then writes the records itself, as it does where there is none.
    """
    writer = log.writer
    if writer.failure is not None or writer.mark is not None:
        return None
    try:
        segment = writer.active or writer.activate(now_ms)
        if segment.end and segment.end + len(batch) > segment.limit:
            segment = log.roll(log.log_end, now_ms)
        return segment.batches.begin_prewrite(batch)
    except StorageError:
        # The append meets it too, and reports it.
        return None
