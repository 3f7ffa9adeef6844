"""Reading in a task: fetches its range from the leader and yields Arrow batches, piece by piece."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from moldau.arrow.decode import Aborted, Decoder
from moldau.arrow.pieces import pieces
from moldau.peer.errors import ConnectionLost, OffsetOutOfRange, TopicRecreated, UnknownTopic
from moldau.peer.fetcher import PartitionFetcher
from moldau.peer.retries import Attempts, attempts
from moldau.records.batch import HEADER_SIZE, CorruptBatch
from moldau.spark.errors import ReadStalled, lost_range, report_loss
from moldau.spark.runtime.pool import borrowed
from moldau.spark.source.options import ReadSettings
from moldau.spark.source.ranges import OffsetRange
from moldau.wire.fetch.response import FetchedPartition


def read_range(wanted: OffsetRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order, in memory that does not grow with it.

    Leader changes and restarts of brokers are waited out. Offsets that compaction removed are
    passed over, as nothing was lost that the topic promises to keep; offsets before the start of
    the log are reported, with the range.
    """
    # The driver may say at once that it reaches no broker; a task rather waits for a restart.
    peer = replace(settings.peer, reach_within_s=settings.peer.retry_within_s)
    settings = replace(settings, peer=peer)
    with borrowed(settings) as cluster:
        fetcher = PartitionFetcher(
            cluster, wanted.topic, wanted.partition, wanted.topic_id, settings.fetch
        )
        try:
            yield from _read(fetcher, wanted, settings)
        finally:
            fetcher.close()


def _read(
    fetcher: PartitionFetcher, wanted: OffsetRange, settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    decoder = Decoder(
        settings.columns, wanted.topic, wanted.partition, check_crcs=settings.check_crcs
    )
    position = wanted.start
    moved = time.monotonic()
    trouble: Attempts | None = None
    while position < wanted.end:
        try:
            stream = fetcher.fetch(position)
        except OffsetOutOfRange as gap:
            position = _after_gap(gap, wanted, settings)
            continue
        except (TopicRecreated, UnknownTopic) as gone:
            what = lost_range(wanted.topic, wanted.partition, position, wanted.end, str(gone))
            report_loss(what, settings.fail_on_data_loss)
            return
        aborted = Aborted(stream.partition.aborted or ())
        before, is_empty = position, True
        try:
            # Read to the end, even if no more is wanted: the next task gets the connection.
            for piece in pieces(stream):
                is_empty = False
                following = max(position, piece.next_offset)
                if not stream.left and position < following < wanted.end:
                    fetcher.ask_ahead(following)
                yield from decoder.decode(piece, position, wanted.end, aborted)
                if following > position:
                    position, trouble = following, None
                    # Not before the batches were taken: the time that Spark needs is not ours.
                    moved = time.monotonic()
        except ConnectionLost:
            # Yield what has arrived, and ask for the rest again.
            fetcher.close()
            trouble = trouble or attempts(settings.peer)
            if position < wanted.end and not trouble.pause():
                raise
            continue
        if is_empty and stream.size >= HEADER_SIZE:
            raise CorruptBatch(
                f"{wanted.topic}-{wanted.partition}: the broker sent an incomplete "
                f"batch at offset {position}"
            )
        if position == before and time.monotonic() - moved > settings.stalled_after_s:
            _stalled(stream.partition, wanted, position, settings)
            return


def _after_gap(gap: OffsetOutOfRange, wanted: OffsetRange, settings: ReadSettings) -> int:
    """Return where to go on after offsets that are not there; raises if that is what is wanted."""
    if gap.offset < gap.log_start:
        end = min(gap.log_start, wanted.end)
        why = f"deleted by retention or on request: the log starts at {gap.log_start} now"
    else:
        end = wanted.end
        why = f"although they existed when the query was planned: the log ends at {gap.log_end}"
    what = lost_range(wanted.topic, wanted.partition, gap.offset, end, why)
    report_loss(what, settings.fail_on_data_loss)
    return end


def _stalled(
    fetched: FetchedPartition, wanted: OffsetRange, position: int, settings: ReadSettings
) -> None:
    readable = fetched.last_stable if settings.fetch.read_committed else fetched.high_watermark
    if readable <= position:
        why = f"although they existed when the query was planned: the log ends at {readable}"
        what = lost_range(wanted.topic, wanted.partition, position, wanted.end, why)
        report_loss(what, settings.fail_on_data_loss)
        return
    raise ReadStalled(
        f"{wanted.topic}-{wanted.partition}: no records from offset "
        f"{position} on for {settings.stalled_after_s:g} s "
        "(kafkaConsumer.pollTimeoutMs), although it has records up to "
        f"{readable}"
    )
