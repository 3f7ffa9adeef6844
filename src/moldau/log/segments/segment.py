"""One segment of a log: a file of record batches and its two sparse indexes."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from collections.abc import Iterator

from moldau.log.errors import CorruptFile, CorruptLog, StorageError
from moldau.log.files.disk import remove_file
from moldau.log.files.open_files import LOG_FLAGS, FilePool, OpenFile
from moldau.log.files.trash import Trash
from moldau.log.segments.index import ENTRY_SIZE as OFFSET_ENTRY
from moldau.log.segments.index import OffsetIndex
from moldau.log.segments.time_index import ENTRY_SIZE as TIME_ENTRY
from moldau.log.segments.time_index import TimeIndex
from moldau.records.batch import HEADER, HEADER_SIZE, MAGIC, BatchHeader

logger = logging.getLogger("moldau.log")

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ".txnindex")
DELETED_SUFFIX = ".deleted"
SWAP_SUFFIX = ".swap"
MAX_RELATIVE_OFFSET = 2**31 - 1
NEVER = 2**63 - 1
_UNKNOWN = -2
_WALK_BYTES = 8192
# base offset and last offset delta of a batch
_RANGE = struct.Struct(">q15xi")


class Segment:
    """`<base offset>.log` and its indexes, all named by the first offset they may hold.

    `size` bytes are written; `end` also counts what the log has staged. No batch's last offset is
    more than 2**31 - 1 above `base`, since the indexes store offsets relative to it. Only the last
    segment of a log is written to. The fields that only appending needs are right once `activate`
    or `begin` has been called. Changed on the event loop only; may be read from any thread. A crash
    leaves any prefix of what was written and not flushed, torn at any byte.
    """

    __slots__ = (
        "base", "created_ms", "end", "file", "first_timestamp", "folder", "interval", "limit",
        "max_offset", "max_timestamp", "max_timestamp_offset", "offsets", "pool", "roll_after_ms",
        "size", "suffix", "times", "unindexed",
    )  # fmt: skip

    def __init__(self, folder: str, base: int, size: int, pool: FilePool, interval: int) -> None:
        self.folder = folder
        self.base = base
        self.size = size
        self.end = size
        self.pool = pool
        self.interval = interval
        # What follows the names of its files; `.deleted` once it is out of the log.
        self.suffix = ""
        self.file: OpenFile | None = None
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        # The largest timestamp so far, and the last offset of the first batch that has it.
        self.max_timestamp = _UNKNOWN
        self.max_timestamp_offset = base
        # The first batch's timestamp, from which the segment's age counts; -1 if it has none.
        self.first_timestamp = -1
        self.created_ms = 0
        # Bytes since the last index entry.
        self.unindexed = 0
        # The log rolls before `end` would pass `limit`, a timestamp `roll_after_ms`, or an offset
        # `max_offset`.
        self.limit = 0
        self.roll_after_ms = NEVER
        self.max_offset = base + MAX_RELATIVE_OFFSET

    @property
    def path(self) -> str:
        return self.path_of(LOG_SUFFIX)

    def path_of(self, suffix: str) -> str:
        return f"{self.folder}/{self.base:020d}{suffix}{self.suffix}"

    def open(self) -> OpenFile:
        file = self.file
        if file is None:
            # An empty segment gets its file when it is first written to.
            flags = LOG_FLAGS if self.size else LOG_FLAGS | os.O_CREAT
            file = self.pool.open(self.path, self, flags)
        file.used = True
        return file

    def create(self, now_ms: int) -> None:
        """Create the empty file of a new segment, ready to be appended to."""
        # A crash may have left indexes of a segment that began here before.
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            remove_file(self.path_of(suffix))
        self.pool.open(self.path, self, LOG_FLAGS | os.O_CREAT | os.O_TRUNC)
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Make an empty segment ready to be appended to."""
        self.offsets = OffsetIndex(self.path_of(INDEX_SUFFIX), self.pool, self.base)
        self.times = TimeIndex(self.path_of(TIME_INDEX_SUFFIX), self.pool, self.base)
        self.max_timestamp = -1
        self.created_ms = now_ms

    def activate(self, now_ms: int) -> None:
        """Make a loaded segment ready to be appended to."""
        if not self.size:
            if self.offsets is None:
                self.begin(now_ms)
            return
        self.created_ms = now_ms
        self.load_indexes()
        self.unindexed = self.size - self.offset_index.last_position
        for _, header in self.headers(0, self.size):
            self.first_timestamp = header.max_timestamp
            break

    # Indexes

    @property
    def offset_index(self) -> OffsetIndex:
        if self.offsets is None:
            self.load_indexes()
        assert self.offsets is not None
        return self.offsets

    @property
    def time_index(self) -> TimeIndex:
        if self.times is None:
            self.load_indexes()
        assert self.times is not None
        return self.times

    def load_indexes(self) -> None:
        """Open the indexes and check them; what is missing or corrupt is rebuilt from the log."""
        if self.times is not None:
            if self.max_timestamp == _UNKNOWN:
                self.max_timestamp, self.max_timestamp_offset = self.times.last
            return
        offsets = OffsetIndex(self.path_of(INDEX_SUFFIX), self.pool, self.base)
        times = TimeIndex(self.path_of(TIME_INDEX_SUFFIX), self.pool, self.base)
        try:
            complete = offsets.load() and times.load()
            offsets.check(self.size)
            times.check()
        except CorruptFile as error:
            logger.warning("rebuilding an index: %s", error)
            complete = False
        self.offsets, self.times = offsets, times
        if complete or not self.size:
            self.max_timestamp, self.max_timestamp_offset = times.last
        else:
            # Segments too small to have an entry have no index files, which is soon put right.
            self.reindex()

    def reindex(self) -> None:
        """Rebuild both indexes from the batches; StorageError where the log itself is broken."""
        offsets, times = self.indexes
        offsets.clear()
        times.clear()
        self.max_timestamp, self.max_timestamp_offset = -1, self.base
        self.unindexed = 0
        for position, header in self.headers(0, self.size):
            self.note(position, header)
        self.seal()

    def note(self, position: int, header: BatchHeader) -> None:
        """Keep the indexes and the largest timestamp in step with a batch at `position`."""
        size, last_offset = header.size, header.last_offset
        # Compaction leaves batches without records, which nobody looks up by time.
        max_timestamp = header.max_timestamp if header.count else -1
        if not position:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.unindexed > self.interval:
            self.add_entry(position, last_offset)
        self.unindexed += size

    def add_entry(self, position: int, last_offset: int) -> None:
        """Index the batch at `position`, which ends with `last_offset`."""
        self.offset_index.append(last_offset, position)
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self.unindexed = 0

    def is_index_full(self, max_bytes: int) -> bool:
        """Is there room for no more entries? The time index keeps one for when it is sealed."""
        offsets, times = self.offsets, self.times
        if offsets is None or times is None:
            return False
        return (
            offsets.count >= max_bytes // OFFSET_ENTRY or times.count >= max_bytes // TIME_ENTRY - 1
        )

    def seal(self) -> None:
        """Write the indexes out, the time index with its final entry, if there are entries."""
        if not self.offset_index.count:
            return
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.write_tail()
        self.time_index.write_tail()

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of the segment; its last change where no batch has one."""
        if self.max_timestamp == _UNKNOWN:
            self.load_indexes()
        return self.max_timestamp if self.max_timestamp >= 0 else self.written_ms

    @property
    def written_ms(self) -> int:
        """When the file was last written to; compaction does not count."""
        try:
            return int(os.stat(self.path).st_mtime * 1000)
        except OSError as error:
            raise StorageError.of(self.path, error) from error

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        return self.offset_index, self.time_index

    def write_index_tails(self) -> None:
        """Move index entries to their files; where the disk refuses they wait for the next time."""
        with contextlib.suppress(StorageError):
            self.offset_index.write_tail()
            self.time_index.write_tail()

    # Reading

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch that begins in [position, end), CRCs unchecked.

        CorruptLog where the lengths do not lead to `end`, or what lies there is no batch.
        """
        file = self.open()
        data, start = b"", position
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(data):
                try:
                    data = os.pread(file.fd, min(_WALK_BYTES, end - position), position)
                except OSError as error:
                    raise StorageError.of(self.path, error) from error
                start, at = position, 0
                if len(data) < HEADER_SIZE:
                    raise self.broken(position)
            header = BatchHeader._make(HEADER.unpack_from(data, at))
            size = header.size
            if size < HEADER_SIZE or position + size > end or header.magic != MAGIC:
                raise self.broken(position)
            yield position, header
            position += size

    def broken(self, position: int) -> CorruptLog:
        return CorruptLog(self.path, position, "no valid batch")

    def find(self, offset: int) -> tuple[int, int]:
        """(position, index entry) of the first batch whose last offset is at least `offset`.

        The position is `size` if there is none. The entry lies at or before that position.
        """
        size = self.size
        last, position, number = self.offset_index.lookup(offset) if size else (-1, 0, 0)
        if last >= 0 and self.base_offset_at(position, last) is None:
            self.reindex()
            _, position, number = self.offset_index.lookup(offset)
        for at, header in self.headers(position, size):
            if header.last_offset >= offset:
                return at, number
        return size, number

    def base_offset_at(self, position: int, last_offset: int) -> int | None:
        """The base offset of the batch at `position`; None, and a word in the log, if that is not
        the batch that ends with `last_offset`, as the index has it."""
        try:
            data = os.pread(self.open().fd, _RANGE.size, position)
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        if len(data) == _RANGE.size:
            base, delta = _RANGE.unpack(data)
            if base + delta == last_offset:
                return int(base)
        logger.warning("rebuilding an index: %s misleads", self.path_of(INDEX_SUFFIX))
        return None

    # Shrinking

    def state(self) -> tuple[int, ...]:
        """What `restore` needs to go back to now; nothing may be staged."""
        offsets, times = self.offsets, self.times
        return (
            self.size,
            offsets.count if offsets is not None else 0,
            times.count if times is not None else 0,
            self.unindexed,
            self.max_timestamp,
            self.max_timestamp_offset,
            self.first_timestamp,
            self.limit,
            self.roll_after_ms,
        )

    def restore(self, state: tuple[int, ...]) -> bool:
        """Go back to an earlier `state` and cut the files to it; False if the log file cannot."""
        (
            self.size,
            offset_entries,
            time_entries,
            self.unindexed,
            self.max_timestamp,
            self.max_timestamp_offset,
            self.first_timestamp,
            self.limit,
            self.roll_after_ms,
        ) = state
        self.end = self.size
        self.offset_index.truncate(offset_entries)
        self.time_index.truncate(time_entries)
        try:
            os.ftruncate(self.open().fd, self.size)
        except (OSError, StorageError):
            return False
        return True

    def truncate(self, position: int, offset: int) -> None:
        """Cut everything from `position` on, which is where the first offset >= `offset` begins."""
        file = self.open()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        try:
            os.ftruncate(file.fd, position)
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        self.size = self.end = position
        indexed = self.offset_index.last_position
        self.unindexed = position - indexed
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last
        # With every offset entry the time index is brought up to date, so only what follows the
        # last one can hold a larger timestamp.
        for _, header in self.headers(indexed, position):
            if header.count and header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset
        if not position:
            self.first_timestamp = -1

    def release(self) -> None:
        """Let go of the open files."""
        self.pool.release(self)
        if self.offsets is not None:
            self.pool.release(self.offsets)
        if self.times is not None:
            self.pool.release(self.times)

    def retire(self, trash: Trash) -> None:
        """Take the files out of the log; readers that hold them open are not disturbed."""
        self.rename_away()
        self.throw_away(trash)

    def rename_away(self) -> None:
        """Free the names of the files. A search on a thread may still open them by the new ones."""
        self.release()
        olds = [self.path_of(suffix) for suffix in SUFFIXES]
        self.suffix = DELETED_SUFFIX
        for index in (self.offsets, self.times):
            if index is not None:
                index.path += DELETED_SUFFIX
        for old in olds:
            _rename(old, old + DELETED_SUFFIX)

    def throw_away(self, trash: Trash) -> None:
        """Have the renamed files removed."""
        for suffix in SUFFIXES:
            trash.add(self.path_of(suffix))

    def take_names(self, ending: str) -> None:
        """Give files that were prepared under names with that ending their proper ones."""
        for suffix in SUFFIXES:
            _rename(self.path_of(suffix) + ending, self.path_of(suffix))


def _rename(old: str, new: str) -> None:
    try:
        os.rename(old, new)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError.of(old, error) from error
