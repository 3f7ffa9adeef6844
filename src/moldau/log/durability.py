"""The durability of a log: what of it is known to be on disk, and the next flush."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from moldau.log.epochs import FILE_NAME as EPOCHS_FILE
from moldau.log.epochs import SAVED
from moldau.log.files.properties import PARTITION_METADATA, encode_topic_id
from moldau.log.flush import Flush
from moldau.log.segments.segments import Segments

if TYPE_CHECKING:
    from moldau.log.log import Log

# After this many bytes a flush also takes a producer snapshot, which bounds what recovery reads.
_SNAPSHOT_BYTES = 16 << 20
_NEW = -1


class Durability:
    """The part of the changes to a log's files and names that has been forced to disk.

    `flushed` is the log's, and follows what is written: a flush that has succeeded moves it to what
    was written when it was prepared, unless the log was cut meanwhile. See `Flush` for which step
    runs where; all of this is for the event loop.
    """

    __slots__ = ("_names", "_snapped_base", "_snapped_size", "_truncations")

    def __init__(self, segments: Segments) -> None:
        # The segments' `names_made` and the log's `truncations` as of the last flush.
        self._names = 0
        self._truncations = 0
        # The active segment at the last snapshot: its base offset and its size.
        last = segments.items[-1]
        self._snapped_base = last.base
        self._snapped_size = last.batches.size

    def mark_new(self) -> None:
        """Nothing of the log's folder is known to be on disk."""
        self._names = _NEW

    def take_snapshot(self, log: Log) -> None:
        """Write the producer state as of now, so that recovery need not read what lies before."""
        if log.written not in log.snapshots.offsets:
            log.snapshots.take(log.written, log.producers, log.segments.bases)
        self._snapped_now(log)

    def prepare(self, log: Log, closing: bool) -> Flush | None:
        """See `prepare_flush`."""
        target, epochs = log.written, log.epochs
        # A cut must reach the disk too, or what was cut off comes back after a power failure.
        is_cut = log.truncations != self._truncations
        wants_snapshot = self._wants_snapshot(log, closing)
        if target <= log.flushed and not is_cut:
            # An epoch in which nothing was written is forgotten by the next start.
            is_changed = log.writer.active is not None or epochs.unsaved_from < target
            if not closing or not (is_changed or wants_snapshot):
                return None
        # The active segment's indexes are not needed before the log closes.
        files = log.segments.files_from(
            log.flushed, with_empty=log.truncations > 0, with_last_indexes=closing
        )
        replacements = []
        if epochs.dirty:
            replacements.append((f"{log.folder}/{EPOCHS_FILE}", epochs.encode()))
            epochs.unsaved_from = SAVED
        folders = []
        if self._names == _NEW:
            # Whose log this is was not forced to disk when it was made, nor its folder.
            if log.topic_id is not None:
                path = f"{log.folder}/{PARTITION_METADATA}"
                replacements.append((path, encode_topic_id(log.topic_id)))
            folders.append(os.path.dirname(log.folder))
        if wants_snapshot:
            replacements.append((log.snapshots.path_of(target), log.producers.encode()))
            log.snapshots.add(target, log.segments.bases)
            self._snapped_now(log)
        if replacements or is_cut or log.segments.names_made != self._names:
            folders.append(log.folder)
        self._names = log.segments.names_made
        finish = partial(self._done, log, target, log.truncations)
        return Flush(target, log.folder, files, replacements, folders, finish)

    def _done(self, log: Log, target: int, truncations: int, succeeded: bool) -> None:
        if not succeeded:
            log.epochs.unsaved_from = 0
            self._names = _NEW
            return
        self._truncations = truncations
        if truncations != log.truncations:
            if target not in log.snapshots.offsets:
                log.snapshots.remove(target)
        elif target > log.flushed:
            log.flushed = target

    def _wants_snapshot(self, log: Log, closing: bool) -> bool:
        snapshots = log.snapshots.offsets
        if log.written in snapshots:
            return False
        if not closing:
            last = log.segments.last
            before = self._snapped_size if last.base == self._snapped_base else 0
            return last.size - before >= _SNAPSHOT_BYTES
        # Loading takes no snapshot at all to mean no producers, which saves small logs the file.
        return bool(snapshots or len(log.producers) or log.segments.size >= _SNAPSHOT_BYTES)

    def _snapped_now(self, log: Log) -> None:
        self._snapped_base = log.segments.last.base
        self._snapped_size = log.segments.last.size


def prepare_flush(log: Log) -> Flush | None:
    """Return what to flush so that everything written survives; None if it already does."""
    return None if log.offline is not None else log.durability.prepare(log, closing=False)


def prepare_close(log: Log) -> Flush | None:
    """Write what is staged; what is left to flush before the log can be let go of."""
    if log.offline is not None:
        return None
    log.commit()
    if log.writer.active is not None:
        log.writer.active.seal()
    return log.durability.prepare(log, closing=True)


def close(log: Log) -> None:
    """Write what is staged, flush everything, snapshot the producers and let go of the files.

    Blocks.
    """
    flush = prepare_close(log)
    if flush is not None:
        try:
            flush.run()
        finally:
            flush.done()
    log.abandon()
