"""Checkpoints of a data folder: where logs start, and how far they are flushed and committed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from moldau.log.errors import CorruptFile
from moldau.log.files.checkpoint import (
    read_counts,
    read_offsets,
    write_counts,
    write_offsets,
)
from moldau.log.log import Log
from moldau.topic_partition import TopicPartition

logger = logging.getLogger("moldau.log")

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
ABORTED = "aborted-transactions-checkpoint"

Offsets = dict[TopicPartition, int]
# Entries of each index of aborted transactions, by the base offset of its segment.
Counts = dict[TopicPartition, dict[int, int]]


class Checkpoints:
    """Three files under Kafka's names, each of `TOPIC PARTITION OFFSET` lines.

    The recovery points say what is flushed: recovery checks what lies behind. One goes back only if
    its log was cut below it, and not where `flushed` is only where a file is forced anew from, as
    after a crash: another crash would have all of that file checked again. The log starts are
    those that no segment begins with. The high watermarks are what a replica knew last. Each file
    is replaced whole, so a crash leaves the old one or the new one; the starts go first, since what
    is flushed never lies before them. A file that cannot be read is ignored: more is checked then
    than need be, and nothing is lost.

    A fourth file, of our own, comes with the first aborted transaction: how many of them each
    segment's index has, as `TOPIC PARTITION SEGMENT COUNT` lines. An index that has fewer after a
    crash is made anew, since the log is not read before the recovery point, and what is missing
    there would be shown as committed. One that has more is newer.

    Prepared on the event loop, written by any thread; an older one never replaces a newer one.
    """

    def __init__(self, folder: str) -> None:
        # None if nothing is known, which is not the same as empty.
        self.recovery_points: Offsets | None = None
        self.log_starts: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.aborted: Counts = {}
        self._folder = folder
        self._writing = threading.Lock()
        self._prepared = 0
        self._newest = self._newest_watermarks = 0

    def read(self) -> None:
        """Take up what the files say. Blocks."""
        self.recovery_points = self._read(RECOVERY_POINTS)
        self.log_starts = self._read(LOG_STARTS) or {}
        self.high_watermarks = self._read(HIGH_WATERMARKS) or {}
        try:
            self.aborted = read_counts(f"{self._folder}/{ABORTED}")
        except CorruptFile as error:
            logger.warning("ignoring a checkpoint: %s", error)

    def names(self, key: TopicPartition) -> bool:
        """Return whether any of the files names that log."""
        return (
            key in (self.recovery_points or ())
            or key in self.log_starts
            or key in self.high_watermarks
        )

    def prepare(self, logs: Mapping[TopicPartition, Log]) -> Callable[[], None]:
        """Event loop: a call that writes all of them, which any thread may make; it blocks.

        Offsets are read there, when it is their turn to be written: of 100,000 logs that takes
        longer than the loop may be held.
        """
        listed = list(logs.items())
        self._prepared += 1
        number = self._prepared

        def write() -> None:
            with self._writing:
                if number < self._newest:
                    return
                log_starts, recovery_points, high_watermarks = {}, {}, {}
                aborted: Counts = {}
                for key, log in listed:
                    # In this order: the flushed offset is never before the start.
                    if log.log_start > log.segments.base:
                        log_starts[key] = log.log_start
                    recovery_points[key] = point = _recovery_point(log)
                    log.durability.recovery_point = max(log.durability.recovery_point, point)
                    high_watermarks[key] = log.high_watermark
                    # After what is flushed, so that all before it are counted.
                    if log.has_aborted and (counts := log.segments.count_aborted()):
                        aborted[key] = counts
                self._write(LOG_STARTS, log_starts)
                if aborted != self.aborted:
                    write_counts(f"{self._folder}/{ABORTED}", aborted)
                    self.aborted = aborted
                self._write(RECOVERY_POINTS, recovery_points)
                for key, log in listed:
                    log.durability.recovery_point = recovery_points[key]
                self._write_high_watermarks(number, high_watermarks)
                self._newest = number
                self.log_starts, self.recovery_points = log_starts, recovery_points

        return write

    def prepare_high_watermarks(self, logs: Mapping[TopicPartition, Log]) -> Callable[[], None]:
        """As `prepare`, but of the high watermarks alone, and only if one has moved."""
        listed = list(logs.items())
        self._prepared += 1
        number = self._prepared

        def write() -> None:
            with self._writing:
                high_watermarks = {key: log.high_watermark for key, log in listed}
                if high_watermarks != self.high_watermarks:
                    self._write_high_watermarks(number, high_watermarks)

        return write

    def _write_high_watermarks(self, number: int, offsets: Offsets) -> None:
        if number > self._newest_watermarks:
            self._write(HIGH_WATERMARKS, offsets)
            self._newest_watermarks = number
            self.high_watermarks = offsets

    def _write(self, name: str, offsets: Offsets) -> None:
        write_offsets(f"{self._folder}/{name}", offsets)

    def _read(self, name: str) -> Offsets | None:
        try:
            return read_offsets(f"{self._folder}/{name}")
        except CorruptFile as error:
            logger.warning("ignoring a checkpoint: %s", error)
            return None


def _recovery_point(log: Log) -> int:
    """Return how far the next recovery may believe the log. Any thread.

    A log that was cut below the present point does not grow before a lower one is on disk.
    """
    present = log.durability.recovery_point
    return log.flushed if log.written < present else max(log.flushed, present)
