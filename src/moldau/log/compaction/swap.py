"""Swaps: compacted segments replace the old ones in the log.

Crash safety is in the names: `.cleaned` files are unfinished and are thrown away by the next start;
`.swap` files are whole and replace what they cover.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from moldau.log.compaction.candidates import Candidate
from moldau.log.compaction.job import CLEANED_SUFFIXES, Job, Outcome
from moldau.log.errors import StorageError
from moldau.log.files.disk import remove_file, rename_file, sync_folder
from moldau.log.log import Log
from moldau.log.segments.names import CLEANED_SUFFIX, SWAP_SUFFIX
from moldau.log.segments.segment import Segment


class Swap:
    """Puts new segments in the place of old ones, in steps that any crash may come between.

    `begin` names the new files `.swap`; when that is on disk, and the recovery point says that all
    of it was flushed, `finish` puts them in place; when that is on disk too, `sweep` lets the old
    files go. Readers of the old segments are not disturbed. `begin` and `finish` answer False, and
    leave no trace, if the log has changed meanwhile; a StorageError from `finish` leaves the log
    fit only for recovery.
    """

    def __init__(self, chosen: Candidate, job: Job, outcome: Outcome) -> None:
        self._log = chosen.log
        self._segments = chosen.segments
        self._sizes = [segment.size for segment in chosen.segments]
        self._ending = job.suffix
        self._outcome = outcome

    def begin(self) -> bool:
        """Event loop. Few renames."""
        if not self._is_unchanged():
            self._remove(self._ending)
            return False
        # The oldest first, and of each the log first: a start takes `.swap` files for unfinished if
        # any `.cleaned` file is as old.
        try:
            for stem, suffix in self._names():
                rename_file(f"{stem}{suffix}{self._ending}", f"{stem}{suffix}{SWAP_SUFFIX}")
        except StorageError:
            self.cancel()
            raise
        return True

    def cancel(self) -> None:
        """Event loop. Instead of `finish`: removes the new files."""
        self._remove(SWAP_SUFFIX)
        self._remove(self._ending)

    def sync(self) -> None:
        """Any thread. After `begin` and after `finish`: makes the new names durable."""
        try:
            sync_folder(self._log.folder)
        except OSError as error:
            raise StorageError.of(self._log.folder, error) from error

    def finish(self) -> bool:
        """Event loop. Few renames."""
        if not self._is_unchanged():
            self.cancel()
            return False
        by_base = {segment.base: segment for segment in self._segments}
        for cleaned in self._outcome.cleaned:
            old = [by_base[base] for base in cleaned.replaces]
            self._log.segments.replace(old, cleaned.base, cleaned.size)
        self._log.reader.forget()
        self._log.clean_end = self._outcome.end
        return True

    def sweep(self) -> None:
        """Event loop."""
        replaced = {base for cleaned in self._outcome.cleaned for base in cleaned.replaces}
        for segment in self._segments:
            if segment.base in replaced:
                segment.throw_away(self._log.segments.trash)

    def _is_unchanged(self) -> bool:
        log = self._log
        return log.offline is None and is_unchanged(log, self._segments, self._sizes)

    def _names(self) -> list[tuple[str, str]]:
        return [
            (f"{self._log.folder}/{cleaned.base:020d}", suffix)
            for cleaned in self._outcome.cleaned
            for suffix in CLEANED_SUFFIXES
        ]

    def _remove(self, ending: str) -> None:
        for stem, suffix in self._names():
            remove_file(f"{stem}{suffix}{ending}")


def swap(chosen: Candidate, job: Job, outcome: Outcome) -> bool:
    """Do the whole of a `Swap` at once; blocks."""
    steps = Swap(chosen, job, outcome)
    if not steps.begin():
        return False
    steps.sync()
    if not steps.finish():
        return False
    steps.sync()
    steps.sweep()
    return True


def is_unchanged(log: Log, segments: Sequence[Segment], sizes: Sequence[int]) -> bool:
    """Return whether the log still has these segments, with these sizes, and does not write to
    them."""
    there = {segment.base: segment for segment in log.segments[:-1]}
    return all(
        there.get(segment.base) is segment and segment.size == size
        for segment, size in zip(segments, sizes, strict=True)
    )


def remove_leftovers(folder: str) -> None:
    """Remove what a worker that failed has written."""
    try:
        names = os.listdir(folder)
    except OSError:
        # The topic was deleted in the meantime, and its folder with it.
        return
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            remove_file(f"{folder}/{name}")
