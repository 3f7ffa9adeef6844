"""What a log is made of: its segments, its offsets, its settings."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from moldau.log.config import LogConfig
from moldau.log.epochs import LeaderEpochs
from moldau.log.errors import StorageError
from moldau.log.files.open_files import FilePool
from moldau.log.files.trash import Trash
from moldau.log.producers.snapshots import Snapshots
from moldau.log.producers.states import ProducerStates
from moldau.log.reader import Reader
from moldau.log.segments.limits import Limits
from moldau.log.segments.segment import Segment
from moldau.log.store.ends import Entry


class LogState:
    """The fields of a log and what follows from them alone; `Log` says what they promise.

    The classes above it add one thing each: appending, flushing, and at last reading and shrinking.
    """

    __slots__ = (
        "_active", "_after_max_ms", "_append_time", "_before_max_ms", "_config", "_end_place",
        "_ends", "_failure",
        "_files_made", "_files_synced", "_inspect", "_limits", "_mark", "_max_bytes", "_reader",
        "_segments",
        "_snapshots", "_staged", "_truncations", "_truncations_synced", "_unsnapped",
        "_written", "clean_end", "epochs",
        "flushed", "folder", "high_watermark", "log_end", "log_start", "offline", "on_failure",
        "partition",
        "pool", "producers", "topic", "topic_id", "trash",
    )  # fmt: skip

    def __init__(
        self,
        folder: str,
        topic: str,
        partition: int,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        pool: FilePool,
        trash: Trash,
        segments: list[Segment],
        snapshots: Snapshots,
    ) -> None:
        self.folder = folder
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.pool = pool
        self.trash = trash
        self.offline: StorageError | None = None
        # Told when the log has failed, on whatever thread that was found; offline or not.
        self.on_failure: Callable[[LogState, StorageError], None] | None = None
        self._segments = segments
        self._snapshots = snapshots
        self._reader = Reader(segments)
        # The last segment, once it is ready to be appended to.
        self._active: Segment | None = None
        self._staged: list[memoryview | bytearray] = []
        # What the log was like at the last commit, to go back to when a write fails.
        self._mark: tuple[int, Segment, tuple[int, ...]] | None = None
        self._failure: StorageError | None = None
        self._truncations = 0
        self._truncations_synced = 0
        self._unsnapped = 0
        self._files_made = 0
        # Negative until the folder of a new log has been synced.
        self._files_synced = 0
        # Where the log's end is written down outside of its folder (see `ends`).
        self._ends: memoryview | list[int] = [0]
        self._end_place = 0
        # Compaction has left at most one record a key before it.
        self.clean_end = 0
        self.config = config
        start = segments[0].base
        self.take_up(start, start, start, ProducerStates(start), LeaderEpochs())

    def take_up(
        self,
        log_start: int,
        log_end: int,
        flushed: int,
        producers: ProducerStates,
        epochs: LeaderEpochs,
    ) -> None:
        """Go on from what loading the log found."""
        self.log_start = self.high_watermark = log_start
        self.log_end = self._written = log_end
        self.flushed = flushed
        self.producers = producers
        self.epochs = epochs

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.log_start}..{self.log_end})"

    # Settings and positions

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._max_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._append_time = config.uses_append_time
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._inspect = config.looks_into_records
        self._limits = Limits.of(config)
        for segment in self._segments:
            segment.obey(self._limits)

    def report(self, error: StorageError) -> None:
        """The disk refused: tell whom it concerns, unless it may soon do so no more."""
        if error.is_damage and self.on_failure is not None:
            self.on_failure(self, error)

    @property
    def end_entry(self) -> Entry | None:
        """Where the log's end is written down, if it is."""
        ends = self._ends
        return (ends, self._end_place) if isinstance(ends, memoryview) else None

    @end_entry.setter
    def end_entry(self, entry: Entry | None) -> None:
        self._ends, self._end_place = entry or ([0], 0)

    def mark_new(self) -> None:
        """Nothing of the log's folder is known to be on disk."""
        self._files_synced = -1

    @property
    def truncations(self) -> int:
        """How often the log was cut, or begun anew."""
        return self._truncations

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def first_base(self) -> int:
        """The first offset that the oldest segment may hold."""
        return self._segments[0].base

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is written to."""
        return tuple(self._segments)

    @property
    def last_stable(self) -> int:
        """Everything before it belongs to no open transaction."""
        unstable = self.producers.first_unstable(self.high_watermark)
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start)

    def advance_high_watermark(self, offset: int) -> None:
        """Move the high watermark up to `offset`, at most to what has been written."""
        if offset > self._written:
            offset = self._written
        if offset > self.high_watermark:
            self.high_watermark = offset

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(leader epoch, where it ended), as OffsetForLeaderEpoch answers; (-1, -1) if unknown."""
        return self.epochs.end_of(leader_epoch, self.log_end)

    def _bases(self) -> set[int]:
        return {segment.base for segment in self._segments}
