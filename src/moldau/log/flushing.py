"""Forcing a log to disk, and closing it."""

from __future__ import annotations

import os
from functools import partial

from moldau.log.appending import AppendingLog
from moldau.log.epochs import FILE_NAME as EPOCHS_FILE
from moldau.log.epochs import SAVED
from moldau.log.errors import StorageError
from moldau.log.files.properties import PARTITION_METADATA, encode_topic_id
from moldau.log.flush import Flush

# After so many bytes a flush also takes a producer snapshot, which bounds what recovery reads.
_SNAPSHOT_BYTES = 16 << 20


class FlushingLog(AppendingLog):
    """`flushed` follows what is written: see `Flush` for which step runs where."""

    __slots__ = ()

    def prepare_flush(self, *, closing: bool = False) -> Flush | None:
        """What to force to disk so that everything written survives; None if it already does.

        The active segment's indexes are not part of it unless the log is `closing`, since recovery
        can do without them.
        """
        target = self._written
        if self.offline is not None:
            return None
        # A cut must reach the disk too, or what was cut off comes back after a power failure.
        is_cut = self._truncations != self._truncations_synced
        if target <= self.flushed and not is_cut:
            # An epoch in which nothing was written is forgotten by the next start.
            is_changed = self._active is not None or self.epochs.unsaved_from < target
            if not closing or not (is_changed or self._wants_snapshot(target, closing)):
                return None
        files = []
        for segment in self._segments[self._reader.number_of(self.flushed) :]:
            if segment.size or self._truncations:
                files.append((segment.path, segment.open()))
            if closing or segment is not self._segments[-1]:
                for index in (segment.offset_index, segment.time_index):
                    if index.is_stored:
                        files.append((index.path, index.open()))
        replacements = []
        if self.epochs.dirty:
            replacements.append((f"{self.folder}/{EPOCHS_FILE}", self.epochs.encode()))
            self.epochs.unsaved_from = SAVED
        folders = []
        if self._files_synced < 0:
            # Whose log this is was not forced to disk when it was made, nor its folder.
            if self.topic_id is not None:
                path = f"{self.folder}/{PARTITION_METADATA}"
                replacements.append((path, encode_topic_id(self.topic_id)))
            folders.append(os.path.dirname(self.folder))
        if self._wants_snapshot(target, closing):
            replacements.append((self._snapshots.path_of(target), self.producers.encode()))
            self._snapshots.add(target, self._bases())
            self._unsnapped = 0
        if replacements or is_cut or self._files_made != self._files_synced:
            folders.append(self.folder)
        self._files_synced = self._files_made
        finish = partial(self._flush_done, target, self._truncations)
        return Flush(target, self.folder, files, replacements, folders, finish)

    def _wants_snapshot(self, offset: int, closing: bool) -> bool:
        snapshots = self._snapshots.offsets
        if offset in snapshots:
            return False
        if not closing:
            return self._unsnapped >= _SNAPSHOT_BYTES
        # Loading takes no snapshot at all to mean no producers, which saves small logs the file.
        return bool(snapshots or len(self.producers) or self.size >= _SNAPSHOT_BYTES)

    def _flush_done(self, target: int, truncations: int, succeeded: bool) -> None:
        if not succeeded:
            self.epochs.unsaved_from = 0
            self._files_synced = -1
            return
        self._truncations_synced = truncations
        if truncations != self._truncations:
            if target not in self._snapshots.offsets:
                self._snapshots.remove(target)
        elif target > self.flushed:
            self.flushed = target

    def close(self) -> None:
        """Write what is staged, flush everything, snapshot the producers and let go of the files.

        Blocks.
        """
        flush = self.prepare_close()
        if flush is not None:
            try:
                flush.run()
            finally:
                flush.done()
        self.abandon()

    def prepare_close(self) -> Flush | None:
        """Write what is staged; what is left to flush before the log can be let go of."""
        if self.offline is not None:
            return None
        self.commit()
        if self._active is not None:
            self._active.seal()
        return self.prepare_flush(closing=True)

    def fail(self, error: StorageError) -> None:
        """What the log holds cannot be trusted any more: offline from now on, and told."""
        self.abandon(error)
        if self.on_failure is not None:
            self.on_failure(self, error)

    def abandon(self, reason: StorageError | None = None) -> None:
        """Let go of the files without writing anything more; offline from then on."""
        self.offline = self.offline or reason or StorageError(self.folder, "the log is closed")
        self._failure = self.offline
        self._reader.forget()
        for segment in self._segments:
            segment.release()
