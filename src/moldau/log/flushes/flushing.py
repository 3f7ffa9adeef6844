"""Flushes of a log: what to force to disk so that everything written survives.

See `Flush` for which step runs where; all of this is for the event loop.
"""

from __future__ import annotations

import os
from functools import partial

from moldau.log.epochs import FILE_NAME as EPOCHS_FILE
from moldau.log.epochs import SAVED
from moldau.log.files.properties import PARTITION_METADATA, encode_topic_id
from moldau.log.flushes.durability import NEW
from moldau.log.flushes.flush import Flush
from moldau.log.log import Log
from moldau.log.producers.snapshot_format import encode_snapshot


def prepare_flush(log: Log) -> Flush | None:
    """Return what to flush so that everything written survives; None if it already does."""
    return None if log.offline is not None else _prepare(log, closing=False)


def has_unforced_cut(log: Log) -> bool:
    """Return whether a power failure could bring back what was cut off from the log."""
    return log.truncations != log.durability.truncations


def prepare_close(log: Log) -> Flush | None:
    """Write what is staged; what is left to flush before the log can be let go of."""
    if log.offline is not None:
        return None
    log.commit()
    if log.writer.active is not None:
        log.writer.active.seal()
    return _prepare(log, closing=True)


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


def _prepare(log: Log, closing: bool) -> Flush | None:
    target, epochs, durability = log.written, log.epochs, log.durability
    # A cut must reach the disk too, or what was cut off comes back after a power failure.
    is_cut = has_unforced_cut(log)
    wants_snapshot = _wants_snapshot(log, closing)
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
    if durability.names == NEW:
        # Whose log this is was not forced to disk when it was made, nor its folder.
        if log.topic_id is not None:
            path = f"{log.folder}/{PARTITION_METADATA}"
            replacements.append((path, encode_topic_id(log.topic_id)))
        folders.append(os.path.dirname(log.folder))
    if wants_snapshot:
        replacements.append((log.snapshots.path_of(target), encode_snapshot(log.producers)))
        log.snapshots.add(target, log.segments.bases)
        durability.snapped(log.segments)
    if replacements or is_cut or log.segments.names_made != durability.names:
        folders.append(log.folder)
    durability.names = log.segments.names_made
    finish = partial(_done, log, target, log.truncations)
    return Flush(target, log.folder, files, replacements, folders, finish)


def _done(log: Log, target: int, truncations: int, succeeded: bool) -> None:
    if not succeeded:
        log.epochs.unsaved_from = 0
        log.durability.mark_new()
        return
    log.durability.truncations = truncations
    if truncations != log.truncations:
        if target not in log.snapshots.offsets:
            log.snapshots.remove(target)
    elif target > log.flushed:
        log.flushed = target


def _wants_snapshot(log: Log, closing: bool) -> bool:
    snapshots = log.snapshots.offsets
    if log.written in snapshots:
        return False
    if not closing:
        return log.durability.has_grown(log.segments)
    # Loading takes no snapshot at all to mean no producers, which saves small logs the file.
    return bool(snapshots or len(log.producers) or log.durability.is_worth_a_snapshot(log.segments))
