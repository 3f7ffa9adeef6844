"""The segments of a log, in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import overload

from moldau.log.errors import StorageError
from moldau.log.files.disk import sync_folder
from moldau.log.files.open_files import FilePool, OpenFile
from moldau.log.files.trash import Trash
from moldau.log.segments.limits import Limits
from moldau.log.segments.names import SWAP_SUFFIX
from moldau.log.segments.segment import Segment


class Segments:
    """All segments of a log's folder, oldest first; there is always one, and the last is active.

    Each begins where the one before it ended, or later where compaction has left a gap. Event loop
    only, but for `all`. A change is a few renames and new files, in an order that leaves a crash
    with whole segments in a row; the names are durable when `names_made` is what it was at a sync
    of the folder. If the power fails before, any of them may be lost: a gap between two segments is
    seen by the next start, but a log whose first one is missing looks like one that was shortened
    by retention. So the name of the first is durable before another follows it.
    """

    __slots__ = ("_durable_base", "_limits", "folder", "items", "names_made", "pool", "trash")

    def __init__(self, folder: str, pool: FilePool, trash: Trash, limits: Limits) -> None:
        self.folder = folder
        self.pool = pool
        self.trash = trash
        # How often files were made or renamed.
        self.names_made = 0
        # The first segment whose name is durable for sure, by its base.
        self._durable_base = -1
        self._limits = limits
        # Changed in place only: a reader holds on to it.
        self.items: list[Segment] = []

    @property
    def all(self) -> tuple[Segment, ...]:
        """As they are now. Any thread."""
        return tuple(self.items)

    @property
    def last(self) -> Segment:
        return self.items[-1]

    @property
    def base(self) -> int:
        """The first offset that the oldest may hold."""
        return self.items[0].base

    @property
    def bases(self) -> set[int]:
        return {segment.base for segment in self.items}

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.batches.size for segment in self.items)

    @property
    def stored_size(self) -> int:
        """Bytes of all batches, and of what must not be lost beside them."""
        return self.size + sum(each.aborted.size for each in self.items if each.aborted is not None)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.items)

    @overload
    def __getitem__(self, number: int) -> Segment: ...

    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...

    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self.items[number]

    def at(self, offset: int) -> Segment:
        """Return the segment that `offset` falls into."""
        return self.items[self.number_of(offset)]

    def from_offset(self, offset: int) -> list[Segment]:
        """Return those from the one that `offset` falls into on."""
        return self.items[self.number_of(offset) :]

    def number_of(self, offset: int) -> int:
        """Return the number of the segment that `offset` falls into."""
        return max(0, bisect_right(self.items, offset, key=_base_of) - 1)

    def obey(self, limits: Limits) -> None:
        """Keep to these limits from now on."""
        if limits is not self._limits:
            self._limits = limits
            for segment in self.items:
                segment.obey(limits)

    # Growing

    def load(self, base: int, size: int) -> None:
        """Take up a segment that follows those there are."""
        self.items.append(Segment(self.folder, base, size, self.pool, self._limits))

    def roll(self, base: int, now_ms: int) -> Segment:
        """Close the last segment and begin one at `base`. An empty one is replaced."""
        last, following = self.last, self._segment(base, 0)
        if last.batches.size:
            self._keep_first(self.base)
            last.seal()
        following.create(now_ms)
        self.names_made += 1
        if last.batches.size:
            self.items.append(following)
        else:
            self.items[-1] = following
            last.retire(self.trash)
        return following

    def replace(self, old: Sequence[Segment], base: int, size: int) -> None:
        """Put one segment, whose files end with `.swap` so far, in the place of neighbours.

        The last one is not among them. Readers of them finish undisturbed; their files go to the
        trash when the caller knows that the swap is on disk.
        """
        number = self.items.index(old[0])
        new = self._segment(base, size)
        for segment in old:
            segment.rename_away()
        new.take_names(SWAP_SUFFIX)
        new.load_aborted()
        self.items[number : number + len(old)] = [new]
        self.names_made += 1

    # Shrinking

    def drop_after(self, segment: Segment) -> None:
        """Drop what follows a segment, the newest first."""
        keep = self.items.index(segment) + 1
        dropped = self.items[keep:]
        del self.items[keep:]
        for following in reversed(dropped):
            following.retire(self.trash)

    def drop_first(self, count: int) -> None:
        """Drop the oldest segments."""
        if count < len(self.items):
            self._keep_first(self.items[count].base)
        for segment in self.items[:count]:
            segment.retire(self.trash)
        del self.items[:count]

    def drop_last(self) -> None:
        self.items.pop().retire(self.trash)

    def restart(self, base: int) -> None:
        """Drop everything and begin anew at `base`."""
        for segment in self.items:
            segment.retire(self.trash)
        segment = self._segment(base, 0)
        segment.create(0)
        self.names_made += 1
        self._durable_base = -1
        self.items[:] = [segment]

    def _keep_first(self, base: int) -> None:
        """See to it that the name of the segment which is the first, or will be, is durable."""
        if base != self._durable_base:
            try:
                sync_folder(self.folder)
            except OSError as error:
                raise StorageError.of(self.folder, error) from error
            self._durable_base = base

    # Files

    def files_from(
        self, offset: int, *, with_empty: bool, with_last_indexes: bool
    ) -> list[tuple[str, OpenFile]]:
        """Return the files to force to disk so that all from `offset` on survives.

        Recovery can do without the sparse indexes of the last segment. An empty file matters where
        it was longer once.
        """
        files = []
        for segment in self.from_offset(offset):
            batches = segment.batches
            if batches.size or with_empty:
                files.append((batches.path, batches.open()))
            if with_last_indexes or segment is not self.last:
                for index in (segment.offset_index, segment.time_index):
                    if index.is_stored:
                        files.append((index.path, index.open()))
            aborted = segment.aborted
            if aborted is not None and aborted.is_stored:
                files.append((aborted.path, aborted.open()))
                self.names_made += not aborted.is_named
                aborted.is_named = True
        return files

    def aborted_transactions(self, first: int, up_to: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of those with records in [first, up_to), by their markers."""
        found: list[tuple[int, int]] = []
        for segment in self.items[self.number_of(first) :]:
            if segment.aborted is not None and segment.aborted.collect(first, up_to, found):
                break
        return found

    def count_aborted(self) -> dict[int, int]:
        """Return how many aborted transactions each segment's index has, by base offset.

        Any thread.
        """
        indexes = ((segment.base, segment.aborted) for segment in self.all)
        return {base: index.count for base, index in indexes if index is not None and index.count}

    def release(self) -> None:
        """Let go of the open files."""
        for segment in self.items:
            segment.release()

    def _segment(self, base: int, size: int) -> Segment:
        return Segment(self.folder, base, size, self.pool, self._limits)


def _base_of(segment: Segment) -> int:
    return segment.base
