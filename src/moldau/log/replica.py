"""Replica: batches as a follower gets them from its leader. Event loop only."""

from __future__ import annotations

from moldau.log.errors import UnexpectedEpoch, UnexpectedOffset
from moldau.log.log import Log
from moldau.log.producers.replay import note_batch
from moldau.log.segments.prewrite import WORTH_PREWRITING
from moldau.log.segments.segment import MAX_RELATIVE_OFFSET
from moldau.records.batch import NO_TIMESTAMP, batches, check_batch


def append_replica(
    log: Log, data: memoryview, asked: int, term: int, now_ms: int, begins: int | None = 0
) -> None:
    """Stage whole batches that the leader of `term` sent when it was asked for the offset `asked`.

    Offsets and epochs stay as given. Gaps are allowed, for compaction leaves some: that these
    are the batches that follow is known only by what was asked. UnexpectedOffset if that is not
    the log's end, or a batch lies below it; CorruptBatch or InvalidRecord for what is no batch,
    StorageError as in `append`. Batches before the bad one are staged.

    UnexpectedEpoch for a batch of a later term. A leader sends what lies in its file when the bytes
    leave, not when it answers. If it has lost the lead meanwhile, it may have cut its log, and have
    copied others to the same place. They would hide that this log has to be cut as well.

    An epoch may have begun anywhere in the gap before its first batch that is left. `begins` is
    where the first one that is new here did so by the leader's word. Where that is not known (None)
    nothing is staged from such a batch on: taken for later than it was, it would hide from others
    that what they have of earlier epochs was never committed.
    """
    writer = log.writer
    if writer.failure is not None:
        raise writer.failure
    if asked != log.log_end:
        raise UnexpectedOffset(asked, log.log_end)
    for position, header in batches(data):
        size = header.size
        is_intact = size == len(data) and size >= WORTH_PREWRITING and writer.has_checked(data)
        check_batch(data, position, size, from_producer=False, is_intact=is_intact)
        base, last = header.base_offset, header.last_offset
        timestamp = header.max_timestamp if header.count else NO_TIMESTAMP
        if base < log.log_end:
            raise UnexpectedOffset(base, log.log_end)
        epoch = header.leader_epoch
        if epoch > term:
            raise UnexpectedEpoch(epoch, term)
        is_new = epoch > log.epochs.latest
        if is_new and begins is None and base > log.log_end and epoch > 0:
            return
        batch = data if size == len(data) else data[position : position + size]
        segment = writer.active
        if segment is None:
            segment = writer.activate(timestamp)
        end = segment.end
        if last > segment.max_offset or (
            end and (end + size > segment.limit or timestamp > segment.roll_after_ms)
        ):
            # Recovery takes segments that do not meet for a loss, so they meet where they can.
            is_far = last - log.log_end > MAX_RELATIVE_OFFSET
            segment = log.roll(base if is_far else log.log_end, timestamp)
        if writer.mark is None:
            writer.mark = (log.log_end, segment, segment.state())
        if is_new:
            log.epochs.assign(epoch, min(max(begins or 0, log.log_end), base))
            if begins:
                # That was said of this one only.
                begins = None
        if header.producer_id >= 0:
            aborted = note_batch(log.producers, header, batch, now_ms)
            if aborted is not None:
                log.note_aborted(segment, aborted)
        writer.staged.append(batch)
        segment.append(size, last, timestamp)
        log.log_end = last + 1
