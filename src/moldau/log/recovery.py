"""Recovery: opens a log, quickly after a clean stop and carefully after a crash."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from moldau.log.config import LogConfig
from moldau.log.contents import Contents
from moldau.log.epochs import FILE_NAME as EPOCHS_FILE
from moldau.log.epochs import LeaderEpochs
from moldau.log.errors import CorruptFile, CorruptLog, StorageError
from moldau.log.files.disk import read_small
from moldau.log.files.open_files import FilePool
from moldau.log.files.properties import PARTITION_METADATA, read_topic_id
from moldau.log.files.trash import Trash
from moldau.log.leftovers import tidy
from moldau.log.log import Log
from moldau.log.producers.reindexing import check_aborted, load_aborted, reindex_aborted
from moldau.log.producers.replay import rebuild_producers
from moldau.log.producers.snapshots import Snapshots
from moldau.log.producers.states import ProducerStates
from moldau.log.producers.undecided import hold_undecided
from moldau.log.segments.limits import Limits
from moldau.log.segments.names import (
    LOG_SUFFIX,
    SEGMENT_FILE,
    SNAPSHOT_SUFFIX,
    TXN_INDEX_SUFFIX,
    path_of,
)
from moldau.log.segments.segment import Segment
from moldau.log.segments.segments import Segments
from moldau.log.truncation import restart_at
from moldau.records.batch import (
    HEADER_SIZE,
    BatchError,
    BatchHeader,
    CorruptBatch,
    check_batch,
    read_header,
)

logger = logging.getLogger("moldau.log")

_TELL_BYTES = 16 << 20


class Recovered(msgspec.Struct):
    """The work to open logs: how much was read, and what could not be kept."""

    checked_bytes: int = 0
    cut_bytes: int = 0
    cut_logs: int = 0
    offline_logs: int = 0
    # Told now and then how much of a log is done, as a share of one.
    on_progress: Callable[[float], None] | None = None


def load_log(
    folder: str,
    topic: str,
    partition: int,
    config: LogConfig,
    pool: FilePool,
    trash: Trash,
    *,
    left_clean: Callable[[uuid.UUID | None, int, int], bool] | None,
    recovery_point: int | None,
    log_start: int,
    high_watermark: int,
    aborted: Mapping[int, int],
    recovered: Recovered,
) -> Log:
    """Return the log in `folder`. Blocks.

    After a clean stop nothing but the small files is read. Otherwise every batch from the recovery
    point on is checked, the log is cut at the first that is not whole and valid, and indexes,
    producer state and leader epochs are brought in step with what is left. What cannot be trusted
    before the recovery point puts the log offline. Where the recovery point is not known (None), or
    the files are others than a clean stop left, everything is checked: `left_clean` says so by
    topic id, partition and size, and is None if there was no clean stop. `aborted` counts the
    aborted transactions that the segments' indexes are known to have; what ends transactions at the
    high watermark or above is looked at again.
    """
    names = tidy(folder, os.listdir(folder))
    segments, snapshots, indexed = _load_files(folder, names, config, pool, trash, log_start)
    first_base = segments.base
    log_start = max(log_start, first_base)
    topic_id = read_topic_id(f"{folder}/{PARTITION_METADATA}")
    damaged = load_aborted(segments, indexed, aborted) if indexed or aborted else None
    is_clean = left_clean is not None and left_clean(topic_id, partition, segments.stored_size)
    if not is_clean and left_clean is not None:
        logger.warning("%s has changed since the broker stopped; checking the whole log", folder)
        recovery_point = None
    take_up = partial(Log, topic, partition, topic_id, config, segments, snapshots)
    epochs = LeaderEpochs()
    try:
        epochs = _load_epochs(folder, names, segments)
        if not is_clean:
            end, has_markers = _recover(segments, epochs, log_start, recovery_point, recovered)
            # The whole segment is forced anew: the last life, or this one, may have cut it.
            flushed = min(recovery_point or 0, segments.at(min(recovery_point or 0, end - 1)).base)
            if has_markers or indexed:
                damaged = min(recovery_point or 0, end if damaged is None else damaged)
        elif recovery_point is not None and _is_plausible(segments.last, recovery_point):
            end = flushed = recovery_point
        else:
            end = flushed = _find_end(segments.last)
        if end < log_start:
            logger.error("%s ends at %d, before its start %d: emptied", folder, end, log_start)
            log = take_up(Contents.empty(log_start)._replace(epochs=epochs))
            log.durability.mark_new()
            restart_at(log, log_start)
            return log
        if indexed:
            worse = check_aborted(segments, end, thoroughly=not is_clean)
            damaged = worse if damaged is None else min(damaged, end if worse is None else worse)
        if damaged is not None:
            reindex_aborted(segments, snapshots, damaged, end)
        snapshots.remove_above(end)
        snapshots.remove_below(first_base)
        epochs.truncate_end(end)
        epochs.truncate_start(log_start)
        is_known = is_clean and not snapshots.offsets
        producers = snapshots.latest(first_base)
        is_behind = producers.end < end and not is_known
        if is_behind:
            rebuild_producers(segments.all, producers, end)
        producers = hold_undecided(producers, segments, snapshots, max(high_watermark, log_start))
        log = take_up(Contents(log_start, end, max(flushed, log_start), producers, epochs))
        if not is_clean or not end:
            # The last life may not have got so far as to force whose log this is to disk.
            log.durability.mark_new()
        if is_behind:
            log.durability.take_snapshot(log.written, log.snapshots, log.producers, log.segments)
    except (StorageError, OSError) as caught:
        error = caught if isinstance(caught, StorageError) else StorageError.of(folder, caught)
        # The recovery point must stay what it is, or the next start would cut what it promises.
        point = max(recovery_point or 0, log_start)
        log = take_up(Contents(log_start, point, point, ProducerStates(first_base), epochs))
        log.abandon(error)
        recovered.offline_logs += 1
        logger.critical("%s-%d is offline: %s", topic, partition, error)
    return log


def create_log(
    folder: str,
    topic: str,
    partition: int,
    topic_id: uuid.UUID | None,
    config: LogConfig,
    pool: FilePool,
    trash: Trash,
) -> Log:
    """Return an empty log in a folder that exists; its file comes with the first batch."""
    segments = Segments(folder, pool, trash, Limits.of(config))
    segments.load(0, 0)
    log = Log(topic, partition, topic_id, config, segments, Snapshots(folder), Contents.empty(0))
    log.durability.mark_new()
    return log


def _load_files(
    folder: str, names: list[str], config: LogConfig, pool: FilePool, trash: Trash, log_start: int
) -> tuple[Segments, Snapshots, list[int]]:
    """Return the segments and snapshots that have these names; an empty segment if there is none.

    Also the base offsets of segments with an index of aborted transactions.
    """
    bases, snapshots, indexes = [], [], []
    for name in names:
        match = SEGMENT_FILE.fullmatch(name)
        if match is None:
            continue
        offset, suffix = int(match[1]), match[2]
        if suffix == LOG_SUFFIX:
            bases.append(offset)
        elif suffix == SNAPSHOT_SUFFIX:
            snapshots.append(offset)
        else:
            indexes.append((offset, name))
    for offset, name in indexes:
        if offset not in bases:
            os.unlink(f"{folder}/{name}")
    segments = Segments(folder, pool, trash, Limits.of(config))
    for base in sorted(bases):
        segments.load(base, os.stat(path_of(folder, base, LOG_SUFFIX)).st_size)
    if not bases:
        segments.load(log_start, 0)
    indexed = [offset for offset, name in indexes if name.endswith(TXN_INDEX_SUFFIX)]
    return segments, Snapshots(folder, sorted(snapshots)), indexed


def _is_plausible(last: Segment, log_end: int) -> bool:
    return log_end > last.base if last.size else log_end == last.base


def _find_end(last: Segment) -> int:
    """Return the end of a log that is known to be whole, from the last segment's last index entry
    on."""
    end = last.base
    position = last.offset_index.last_position if last.size else 0
    for _, header in last.batches.headers(position, last.size):
        end = header.last_offset + 1
    return end


def _load_epochs(folder: str, names: list[str], segments: Segments) -> LeaderEpochs:
    if EPOCHS_FILE not in names:
        return LeaderEpochs()
    path = f"{folder}/{EPOCHS_FILE}"
    try:
        content = read_small(path)
        if not content:
            # A crash came between writing it and forcing it to disk.
            raise CorruptFile(path, "it is empty")
        return LeaderEpochs.decode(content, path)
    except CorruptFile as error:
        logger.warning("rebuilding the leader epochs from the log: %s", error)
    epochs = LeaderEpochs()
    with contextlib.suppress(StorageError):
        end = segments.base
        for segment in segments:
            for _, header in segment.batches.headers(0, segment.size):
                if header.leader_epoch > epochs.latest:
                    # It may have begun anywhere in a gap that compaction has left.
                    epochs.assign(header.leader_epoch, end)
                end = header.last_offset + 1
    return epochs


# After a crash


def _recover(
    segments: Segments,
    epochs: LeaderEpochs,
    log_start: int,
    known_point: int | None,
    recovered: Recovered,
) -> tuple[int, bool]:
    """Check everything from the recovery point on and cut what is not sound.

    Returns the log's end, and whether there are markers of transactions.
    """
    recovery_point = known_point or 0
    has_markers = False
    name = os.path.basename(segments.folder)
    unflushed = segments.from_offset(recovery_point)
    end = unflushed[0].base
    total = max(sum(segment.size for segment in unflushed), 1)
    done = 0
    for segment in unflushed:
        start = position = told = 0
        error: BatchError | None = None
        try:
            # Segments that follow the recovery point have not been compacted, so each begins where
            # the one before ended, unless that lost its tail.
            if segment.base < end or (segment.base > end and known_point is not None):
                raise CorruptBatch(f"segment {segment.base} does not follow offset {end}", 0)
            if segment is unflushed[0]:
                start = position = told = _resume(segment, recovery_point)
                total = max(total - start, 1)
            else:
                segment.go_back()
            for at, header, _ in segment.batches.scan(start):
                position = at
                _check_offsets(header, max(end, segment.base), segment.max_offset, at)
                segment.append_again(header)
                if header.is_control:
                    has_markers = True
                # After a power failure the file of epochs may be older than the log or newer, and
                # what a follower had cut off may be back behind batches of a later epoch. The
                # last batch's epoch must be known for what it is: the leader cuts by it. The file
                # may also have an epoch in which nothing was written, where another went on.
                written = max(header.base_offset, log_start)
                if 0 <= header.leader_epoch != epochs.epoch_at(written):
                    if not at == start > 0:
                        # It may have begun anywhere in a gap that compaction has left.
                        written = max(end, log_start)
                    epochs.assign(header.leader_epoch, written)
                end = header.last_offset + 1
                position = at + header.size
                if position - told >= _TELL_BYTES and recovered.on_progress is not None:
                    recovered.on_progress((done + position - start) / total)
                    told = position
        except BatchError as caught:
            error, position = caught, caught.position
        recovered.checked_bytes += position - start
        done += position - start
        if error is None:
            segment.seal()
            end = max(end, segment.base)
        elif end < recovery_point and log_start < recovery_point:
            # Below log_start nothing needs to be there: deleting records moves the point along.
            raise CorruptLog(segment.path, position, f"{error}, after offset {end - 1}")
        else:
            path = segment.path
            cut = _cut(segments, segment, position, end)
            recovered.cut_bytes += cut
            recovered.cut_logs += 1
            logger.warning(
                "%s: truncated by %d bytes, the log now ends at offset %d: %s at position %d: %s",
                name, cut, end, path, position, error,
            )  # fmt: skip
            break
    if end < recovery_point and log_start < recovery_point:
        logger.error(
            "%s ends at offset %d, although it was flushed up to %d", name, end, recovery_point
        )  # fmt: skip
    return end, has_markers


def _check_offsets(header: BatchHeader, least: int, most: int, position: int) -> None:
    if header.base_offset < least:
        raise CorruptBatch(f"offset {header.base_offset} comes after {least - 1}", position)
    if header.last_offset > most:
        raise CorruptBatch(f"offset {header.last_offset} is too large for its segment", position)


def _cut(segments: Segments, segment: Segment, position: int, end: int) -> int:
    """Drop what comes after `position` of a segment, where the log then ends; how many bytes that
    was."""
    size = segments.size
    segments.drop_after(segment)
    segment.batches.cut(position)
    # Or what was cut off might come back behind what is written in its place.
    os.fsync(segment.batches.open().fd)
    segment.end = position
    # One of which nothing is left stays only if it says where the log ends: what compaction left
    # of the segment before it may end earlier.
    if not position and len(segments) > 1 and segment.base != end:
        segments.drop_last()
    else:
        segment.seal()
    return size - segments.size


def _resume(segment: Segment, recovery_point: int) -> int:
    """Return the position of a batch at or before the recovery point that the indexes lead to.

    The indexes are cut back to it. They are not forced to disk with the log, so they are believed
    only where they are in order and the batch they point at is sound.
    """
    with contextlib.suppress(BatchError, StorageError):
        indexes = segment.indexes
        last, position, _ = indexes.offsets.lookup(recovery_point - 1)
        if last >= 0 and indexes.rise():
            header = read_header(segment.batches.read(position, HEADER_SIZE))
            batch = segment.batches.read(position, max(header.size, HEADER_SIZE))
            if check_batch(batch, from_producer=False).last_offset == last:
                segment.go_back(last, position, header.base_offset)
                return position
    segment.go_back()
    return 0
