"""Jobs and outcomes: a broker's request to a compaction worker, and its answer. JSON."""

from __future__ import annotations

import msgspec

from moldau.log.segments.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)

CLEANED_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Job(msgspec.Struct, frozen=True):
    """A compaction to do: the segments of a folder as (base offset, size), oldest first.

    Keys are collected from `dirty_start` on and before `end`; older records stay only while no
    newer one of their key was collected. `later` are the segments that follow: they are not
    compacted, but may say how a transaction ended. `producers` are (id, epoch, last offsets of the
    batches that may be repeated): what they are recognized by has to stay. `tag` tells the files of
    this job from those of any other.
    """

    folder: str
    tag: str
    segments: list[tuple[int, int]]
    later: list[tuple[int, int]]
    dirty_start: int
    end: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    bytes_per_second: float
    producers: list[tuple[int, int, list[int]]]
    broker_pid: int

    @property
    def suffix(self) -> str:
        """The suffix of the files that this job writes."""
        return f".{self.tag}{CLEANED_SUFFIX}"


class Cleaned(msgspec.Struct, frozen=True):
    """One new segment: its base offset, its size, and the bases of those that it replaces."""

    base: int
    size: int
    replaces: list[int]


class Outcome(msgspec.Struct, frozen=True):
    """The result of a job. `end` is how far the log is now clean; less than asked if the map was
    full.

    With an `error` nothing may be used; `is_corrupt` says that it is in what the segments hold.
    """

    end: int
    cleaned: list[Cleaned] = []
    read_records: int = 0
    kept_records: int = 0
    read_bytes: int = 0
    kept_bytes: int = 0
    keys: int = 0
    error: str = ""
    is_corrupt: bool = False
