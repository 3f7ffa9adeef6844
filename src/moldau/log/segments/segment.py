"""One segment of a log: a file of record batches and its indexes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from moldau.log.errors import CorruptLog, StorageError
from moldau.log.files.disk import remove_file, rename_file
from moldau.log.files.open_files import FilePool, OpenFile
from moldau.log.files.trash import Trash
from moldau.log.segments.aborted_index import AbortedIndex, AbortedTransaction
from moldau.log.segments.batch_file import BatchFile, Buffer
from moldau.log.segments.index import OffsetIndex
from moldau.log.segments.indexes import TAIL_ENTRIES, Indexes
from moldau.log.segments.limits import NEVER, Limits
from moldau.log.segments.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    path_of,
)
from moldau.log.segments.time_index import TimeIndex
from moldau.records.batch import NO_TIMESTAMP, BatchHeader

MAX_RELATIVE_OFFSET = 2**31 - 1
_UNKNOWN = -2


class Segment:
    """`<base offset>.log` and its indexes, all named by the first offset they may hold.

    Two of them are sparse; the third has all `aborted` transactions, and is None if there are none.

    `size` bytes of batches are written; `end` also counts those that `append` was told of and
    `write` was not yet. No batch's last offset is more than 2**31 - 1 above `base`, since the
    indexes store offsets relative to it. A batch is indexed when more than index.interval.bytes lie
    between it and the last one that is.

    Only the last segment of a log is appended to, after `begin` or `activate`: what appending needs
    is right from then on. Changed on the event loop only; may be read from any thread. What a crash
    leaves, `BatchFile` and `Indexes` say.
    """

    __slots__ = (
        "_index_after", "_indexes", "aborted", "base", "batches", "created_ms", "end",
        "first_timestamp", "folder", "limit", "limits", "max_offset", "max_timestamp",
        "max_timestamp_offset", "pool", "roll_after_ms", "suffix",
    )  # fmt: skip

    def __init__(
        self, folder: str, base: int, size: int, pool: FilePool, limits: Limits, suffix: str = ""
    ) -> None:
        self.folder = folder
        self.base = base
        self.end = size
        self.pool = pool
        self.limits = limits
        # The suffix of its files' names; `.deleted` once it is out of the log.
        self.suffix = suffix
        self.batches = BatchFile(folder, base, size, pool, suffix)
        # Loaded when they are first needed.
        self._indexes: Indexes | None = None
        self.aborted: AbortedIndex | None = None
        # The largest timestamp so far, and the last offset of the first batch that has it.
        self.max_timestamp = _UNKNOWN
        self.max_timestamp_offset = base
        # The first batch's timestamp, from which the segment's age counts; -1 if it has none.
        self.first_timestamp = -1
        self.created_ms = 0
        # The log rolls before `end` would pass `limit`, a timestamp `roll_after_ms`, or an offset
        # `max_offset`.
        self.limit = 0
        self.roll_after_ms = NEVER
        self.max_offset = base + MAX_RELATIVE_OFFSET
        # A batch that begins beyond this position is indexed.
        self._index_after = limits.index_interval

    @property
    def size(self) -> int:
        return self.batches.size

    @property
    def path(self) -> str:
        return self.batches.path

    def path_of(self, suffix: str) -> str:
        return path_of(self.folder, self.base, suffix) + self.suffix

    def open(self) -> OpenFile:
        return self.batches.open()

    # Appending

    def create(self, now_ms: int) -> None:
        """Create the empty file of a new segment, ready to be appended to."""
        # A crash may have left indexes of a segment that began here before.
        self._new_indexes().clear()
        remove_file(self.path_of(TXN_INDEX_SUFFIX))
        self.batches.create()
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Make an empty segment ready to be appended to."""
        self._indexes = self._new_indexes()
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base
        self._index_after = self.limits.index_interval
        self.created_ms = now_ms
        self._limit_growth()

    def activate(self, now_ms: int) -> None:
        """Make a loaded segment ready to be appended to."""
        if not self.size:
            if self._indexes is None:
                self.begin(now_ms)
        else:
            self.created_ms = now_ms
            offsets = self.offset_index
            self._index_after = offsets.last_position + self.limits.index_interval
            for _, header in self.batches.headers(0, self.size):
                self.first_timestamp = header.max_timestamp
                break
        self._limit_growth()

    def append(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Take in the next batch, of `size` bytes: they come with `write`.

        The timestamp is -1 for one that nobody looks up by time. Whatever brings a batch into the
        segment comes through here: this alone keeps the indexes in step.
        """
        position = self.end
        self.end = position + size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position > self._index_after:
            self._add_entry(position, last_offset)
        elif not position:
            self.first_timestamp = max_timestamp
            self._limit_growth()

    def append_again(self, header: BatchHeader) -> None:
        """Take in the next batch of those that are in the file already."""
        # Compaction leaves batches without records, which nobody looks up by time.
        max_timestamp = header.max_timestamp if header.count else NO_TIMESTAMP
        self.append(header.size, header.last_offset, max_timestamp)

    def write(self, batches: Sequence[Buffer]) -> None:
        """Put into the file what was appended since the last write."""
        file = self.batches
        file.write(batches, self.end - file.size)
        indexes = self._indexes
        if indexes is not None and indexes.unwritten >= TAIL_ENTRIES:
            # Where the disk refuses they wait for the next time.
            with contextlib.suppress(StorageError):
                indexes.write()
        if self.aborted is not None:
            self.aborted.write_tail()

    def obey(self, limits: Limits) -> None:
        """Keep to these limits from now on."""
        self._index_after += limits.index_interval - self.limits.index_interval
        self.limits = limits
        self._limit_growth()

    def is_old(self, now_ms: int) -> bool:
        """Return whether the log should go on with another segment though this one is not full."""
        # Records from the past do not make a young segment old.
        began_ms = max(self.first_timestamp, self.created_ms)
        return now_ms - began_ms > self.limits.max_age_ms

    def _add_entry(self, position: int, last_offset: int) -> None:
        """Index the batch at `position`, which ends with `last_offset`."""
        indexes = self.indexes
        indexes.add(last_offset, position, self.max_timestamp, self.max_timestamp_offset)
        self._index_after = position + self.limits.index_interval
        if indexes.is_full(self.limits.max_index_bytes):
            self.limit = 0

    def _limit_growth(self) -> None:
        indexes, limits = self._indexes, self.limits
        is_full = indexes is not None and indexes.is_full(limits.max_index_bytes)
        self.limit = 0 if is_full else limits.max_bytes
        self.roll_after_ms = limits.roll_after_ms(self.base, self.first_timestamp)

    # Indexes

    @property
    def indexes(self) -> Indexes:
        """Both indexes; what is missing or corrupt is rebuilt from the log."""
        if self._indexes is None:
            self.load_indexes()
            assert self._indexes is not None
        return self._indexes

    @property
    def offset_index(self) -> OffsetIndex:
        return self.indexes.offsets

    @property
    def time_index(self) -> TimeIndex:
        return self.indexes.times

    def load_indexes(self) -> None:
        """Have `max_timestamp`, and the indexes, ready."""
        if self._indexes is not None:
            if self.max_timestamp == _UNKNOWN:
                self.max_timestamp, self.max_timestamp_offset = self._indexes.times.last
            return
        indexes = self._new_indexes()
        is_complete = indexes.load(self.size)
        self._indexes = indexes
        if is_complete or not self.size:
            self.max_timestamp, self.max_timestamp_offset = indexes.times.last
        else:
            # Segments too small to have an entry have no index files, which is soon put right.
            self.reindex()

    def reindex(self) -> None:
        """Rebuild both indexes from the batches; StorageError where the log itself is broken."""
        self.indexes.clear()
        # In another segment, since `end` stays what it is: a search on a thread may come here.
        anew = Segment(self.folder, self.base, 0, self.pool, self.limits, self.suffix)
        anew.begin(0)
        for position, header in self.batches.headers(0, self.size):
            # No checksum covers a batch's base offset, and an entry has room for 32 bits.
            if not self.base <= header.base_offset <= header.last_offset <= self.max_offset:
                raise CorruptLog(self.path, position, "its offsets do not fit the segment")
            anew.append_again(header)
        anew.seal()
        self._indexes = anew._indexes
        self.max_timestamp = anew.max_timestamp
        self.max_timestamp_offset = anew.max_timestamp_offset
        self.first_timestamp = anew.first_timestamp
        self._index_after = anew._index_after

    def go_back(self, last_offset: int = -1, position: int = 0, base_offset: int = 0) -> None:
        """Forget batches, all or from an indexed one on, for the caller to append them again.

        That one lies at `position` and covers [base_offset, last_offset].
        """
        self.end = position
        if not position:
            self.release()
            self._new_indexes().clear()
            self.begin(0)
            return
        indexes = self.indexes
        indexes.offsets.truncate_to(last_offset)
        indexes.times.truncate_to(base_offset)
        self.max_timestamp, self.max_timestamp_offset = indexes.times.last
        # The batch had an entry, and gets it again.
        self._index_after = position - 1

    def seal(self) -> None:
        """Write the indexes out: the segment is not appended to any more, or not for a while."""
        file = self.batches
        if file.is_torn:
            # Loading the log would take the remains of a failed write for batches.
            file.cut(file.size)
        self.indexes.seal(self.max_timestamp, self.max_timestamp_offset)

    def load_aborted(self) -> None:
        """Take up the index of aborted transactions, if there is a file; CorruptFile if that is
        damaged."""
        index = AbortedIndex(self.path_of(TXN_INDEX_SUFFIX), self.pool, self.base)
        if index.load() and index.count:
            self.aborted = index

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Index a transaction whose marker is the last batch that was appended."""
        if self.aborted is None:
            self.aborted = AbortedIndex(self.path_of(TXN_INDEX_SUFFIX), self.pool, self.base)
        self.aborted.append(aborted)

    def forget_aborted(self, offset: int) -> None:
        """Drop transactions whose markers lie at `offset` or above, whatever the file holds."""
        if self.aborted is None:
            return
        self.aborted.truncate_to(offset)
        if not self.aborted.count:
            self.aborted.clear()
            self.aborted = None

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of the segment; its last change where no batch has one."""
        if self.max_timestamp == _UNKNOWN:
            self.load_indexes()
        return self.max_timestamp if self.max_timestamp >= 0 else self.batches.written_ms

    def _new_indexes(self) -> Indexes:
        paths = self.path_of(INDEX_SUFFIX), self.path_of(TIME_INDEX_SUFFIX)
        return Indexes(*paths, self.pool, self.base)

    # Shrinking

    def state(self) -> tuple[int, ...]:
        """Return what `restore` needs to come back here; all appended data must be written."""
        indexes = self._indexes
        assert indexes is not None
        return (
            self.batches.size,
            indexes.offsets.count,
            indexes.times.count,
            self._index_after,
            self.max_timestamp,
            self.max_timestamp_offset,
            self.first_timestamp,
            self.limit,
            self.roll_after_ms,
        )

    def state_before(self, position: int, offset: int) -> tuple[int, ...]:
        """Return what `restore` needs to cut everything from `position` on, which is where the
        first offset >= `offset` begins."""
        offsets, times = self.indexes.offsets, self.indexes.times
        last, indexed, number = offsets.lookup(offset - 1)
        time_entries, newest, newest_offset = times.before(offset)
        # With every offset entry the time index is brought up to date, so only what follows the
        # last one can hold a larger timestamp.
        for _, header in self.batches.headers(indexed, position):
            if header.count and header.max_timestamp > newest:
                newest, newest_offset = header.max_timestamp, header.last_offset
        return (
            position,
            number + 1 if last >= 0 else 0,
            time_entries,
            indexed + self.limits.index_interval,
            newest,
            newest_offset,
            self.first_timestamp if position else -1,
            self.limit,
            self.roll_after_ms,
        )

    def restore(self, state: tuple[int, ...]) -> None:
        """Go to an earlier `state` and cut the files to it; StorageError where that fails."""
        (
            self.end,
            offset_entries,
            time_entries,
            self._index_after,
            self.max_timestamp,
            self.max_timestamp_offset,
            self.first_timestamp,
            self.limit,
            self.roll_after_ms,
        ) = state
        try:
            self.indexes.truncate(offset_entries, time_entries)
        finally:
            # Where that fails, the next write cuts first.
            self.batches.cut(self.end)

    # Leaving the log

    def release(self) -> None:
        """Let go of the open files."""
        self.batches.release()
        if self._indexes is not None:
            self._indexes.release()
        if self.aborted is not None:
            self.pool.release(self.aborted)

    def retire(self, trash: Trash) -> None:
        """Take the files out of the log; readers that hold them open are not disturbed."""
        self.rename_away()
        self.throw_away(trash)

    def rename_away(self) -> None:
        """Free the names of the files. A search on a thread may still open them by the new ones."""
        self.release()
        olds = [self.path_of(suffix) for suffix in SUFFIXES]
        self.suffix = self.batches.suffix = DELETED_SUFFIX
        if self._indexes is not None:
            self._indexes.renamed(DELETED_SUFFIX)
        if self.aborted is not None:
            self.aborted.path += DELETED_SUFFIX
        for old in olds:
            rename_file(old, old + DELETED_SUFFIX)

    def throw_away(self, trash: Trash) -> None:
        """Have the renamed files removed."""
        for suffix in SUFFIXES:
            trash.add(self.path_of(suffix))

    def take_names(self, ending: str) -> None:
        """Give files that were prepared under names with that ending their proper ones."""
        for suffix in SUFFIXES:
            rename_file(self.path_of(suffix) + ending, self.path_of(suffix))
