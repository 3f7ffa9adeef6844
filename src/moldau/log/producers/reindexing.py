"""Reindexing: aborted transactions are found anew where their index cannot be trusted.

Any thread; blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping

from moldau.log.errors import CorruptFile, StorageError
from moldau.log.files.disk import remove_file
from moldau.log.producers.replay import rebuild_producers
from moldau.log.producers.snapshots import Snapshots
from moldau.log.segments.aborted_index import AbortedIndex
from moldau.log.segments.names import TXN_INDEX_SUFFIX
from moldau.log.segments.search import find
from moldau.log.segments.segment import Segment
from moldau.log.segments.segments import Segments
from moldau.records.batch import BatchHeader

logger = logging.getLogger("moldau.log")


def load_aborted(
    segments: Segments, indexed: Container[int], expected: Mapping[int, int]
) -> int | None:
    """Take up the indexes of the segments with these base offsets.

    `expected` says how many entries they had at least, those that are gone included. Returns the
    offset from which on they have to be made anew, if one is damaged.
    """
    damaged = None
    for segment in segments:
        try:
            if segment.base in indexed:
                segment.load_aborted()
            count = 0 if segment.aborted is None else segment.aborted.count
            known = expected.get(segment.base, 0)
            if count < known:
                reason = f"{count} of {known} entries are left"
                raise CorruptFile(segment.path_of(TXN_INDEX_SUFFIX), reason)
        except (CorruptFile, StorageError) as error:
            logger.warning("rebuilding a damaged index of aborted transactions: %s", error)
            if segment.aborted is not None:
                segment.pool.release(segment.aborted)
                segment.aborted = None
            remove_file(error.path)
            damaged = segment.base if damaged is None else damaged
    return damaged


def check_aborted(segments: Segments, end: int, *, thoroughly: bool) -> int | None:
    """Compare the indexes with where the segments of a log end, the last one at `end`.

    `thoroughly` compares all of their entries with the batches that they are about: the file has no
    checksum, and one wrong bit would show aborted records. Returns as `load_aborted` does.
    """
    damaged = None
    bases = [*(segment.base for segment in segments[1:]), end]
    for segment, following in zip(segments, bases, strict=True):
        if segment.aborted is not None:
            try:
                segment.aborted.check(following, thoroughly=thoroughly)
                if thoroughly:
                    _compare(segments, segment, segment.aborted)
            except CorruptFile as error:
                logger.warning("rebuilding a damaged index of aborted transactions: %s", error)
                damaged = segment.base if damaged is None else damaged
    return damaged


def _compare(segments: Segments, segment: Segment, index: AbortedIndex) -> None:
    """CorruptFile if an entry is about batches of another producer, or of none. What compaction or
    retention has taken away is not missed."""
    for each in index.transactions():
        marker, first = _batch_at(segment, each.last_offset), None
        if each.first_offset >= segments.base:
            first = _batch_at(segments.at(each.first_offset), each.first_offset)
        if (marker is not None and not marker.is_control) or any(
            found is not None and found.producer_id != each.producer_id for found in (marker, first)
        ):
            raise CorruptFile(index.path, f"the log has no records of {each}")


def _batch_at(segment: Segment, offset: int) -> BatchHeader | None:
    """Return the batch that holds an offset, if there is one."""
    position, _ = find(segment, offset)
    for _, header in segment.batches.headers(position, segment.size):
        return header if header.base_offset <= offset else None
    return None


def reindex_aborted(segments: Segments, snapshots: Snapshots, start: int, end: int) -> None:
    """Index all transactions anew that were aborted by markers from `start` on."""
    for segment in segments.from_offset(start):
        if segment.base >= start and segment.aborted is not None:
            segment.pool.release(segment.aborted)
            segment.aborted = None
            remove_file(segment.path_of(TXN_INDEX_SUFFIX))
        else:
            segment.forget_aborted(start)
    begun = snapshots.before(start, segments.base)
    rebuild_producers(segments.all, begun, end, start)
    for segment in segments.from_offset(start):
        if segment.aborted is not None:
            segment.aborted.write_tail()
