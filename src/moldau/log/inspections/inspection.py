"""Inspection of log files, with or without a running broker. Writes nothing.

A running broker appends meanwhile, so the last batch of a log may be seen half written, and
retention or compaction may take a file away: neither is damage.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.log.errors import StorageError
from moldau.log.files.open_files import OpenFile
from moldau.log.inspections.transaction_check import TransactionCheck
from moldau.log.segments.index import ENTRY_SIZE as OFFSET_ENTRY
from moldau.log.segments.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from moldau.log.segments.segment import MAX_RELATIVE_OFFSET
from moldau.log.segments.time_index import ENTRY_SIZE as TIME_ENTRY
from moldau.records.batch import HEADER_SIZE, BatchError, BatchHeader, check_batch, read_header

_SEGMENT = re.compile(r"(\d{20})\.log")
_LOG_FOLDER = re.compile(r".+-\d{1,10}")
_READ_BYTES = 1 << 20
# A length beyond this is damage, and not to be believed.
_MOST_BYTES = 1 << 28
# How often, and how far apart, a torn end is looked at again: a broker may be writing it.
_LOOKS = 5
_LOOK_AGAIN_S = 0.02
_OFFSET_PAIR = struct.Struct(">ii")
_TIME_PAIR = struct.Struct(">qi")


class Damage(NamedTuple):
    """A damage and its position; `heals` if a broker rebuilds the file by itself."""

    path: str
    position: int
    reason: str
    heals: bool = False


@dataclass(slots=True)
class SegmentReport:
    """One segment file and what was found in it."""

    path: str
    base: int
    size: int = 0
    batches: int = 0
    records: int = 0
    first_offset: int = -1
    end_offset: int = -1
    largest_timestamp: int = -1
    damage: list[Damage] = field(default_factory=list)


@dataclass(slots=True)
class LogReport:
    """One partition's folder."""

    folder: str
    segments: list[SegmentReport] = field(default_factory=list)

    @property
    def name(self) -> str:
        return os.path.basename(self.folder)

    @property
    def damage(self) -> list[Damage]:
        return [found for segment in self.segments for found in segment.damage]


def log_folders(folder: str) -> list[str]:
    """Return the folders of logs: this one, or those in a data folder; StorageError if there are
    none."""
    try:
        names = sorted(os.listdir(folder))
        if any(_SEGMENT.fullmatch(name) for name in names):
            return [folder.rstrip("/") or "/"]
        found = [
            os.path.join(folder, name)
            for name in names
            if _LOG_FOLDER.fullmatch(name) and os.path.isdir(os.path.join(folder, name))
        ]
    except OSError as error:
        raise StorageError.of(folder, error) from error
    if not found and "partition.metadata" not in names:
        raise StorageError(folder, "it contains no log, and neither do its subfolders")
    return found or [folder]


def segment_files(folder: str) -> list[str]:
    """Return the segments of a log, oldest first."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise StorageError.of(folder, error) from error
    return [os.path.join(folder, name) for name in names if _SEGMENT.fullmatch(name)]


def check_log(folder: str) -> LogReport:
    """Read every batch of a log and compare the indexes with them."""
    report = LogReport(folder)
    least = 0
    transactions = TransactionCheck()
    paths = segment_files(folder)
    for path in paths:
        try:
            segment = _check_segment(path, least, transactions)
        except FileNotFoundError:
            continue
        report.segments.append(segment)
        least = max(least, segment.end_offset, segment.base)
    return report


def _check_segment(path: str, least: int, transactions: TransactionCheck) -> SegmentReport:
    base = int(os.path.basename(path)[:20])
    report = SegmentReport(path, base)
    if base < least:
        reason = f"the segment starts at offset {base}, but the previous one ends at {least}"
        report.damage.append(Damage(path, 0, reason))
    least = max(least, base)
    # Read before the batches: an index never knows more than the log beside it.
    offset_index = _content(path, INDEX_SUFFIX)
    time_index = _content(path, TIME_INDEX_SUFFIX)
    unmet = _offset_entries(offset_index)
    for step in walk(path):
        if isinstance(step, Damage):
            report.damage.append(step)
            break
        position, header, batch = step
        transactions.follow(header, batch)
        if header.base_offset < least:
            reason = f"offset {header.base_offset} comes after {least - 1}"
            report.damage.append(Damage(path, position, reason))
        elif header.last_offset - base > MAX_RELATIVE_OFFSET:
            # The offset is not covered by the checksum, so it is not to be believed for the rest.
            reason = f"offset {header.last_offset} is too large for its segment"
            report.damage.append(Damage(path, position, reason))
            break
        least = max(least, header.last_offset + 1)
        unmet.discard((header.last_offset - base, position))
        report.size = position + header.size
        report.batches += 1
        report.records += header.count
        if report.first_offset < 0:
            report.first_offset = header.base_offset
        report.end_offset = header.last_offset + 1
        report.largest_timestamp = max(report.largest_timestamp, header.max_timestamp)
    if not report.damage:
        report.damage += _check_offset_index(path, offset_index, unmet)
        report.damage += [Damage(*found) for found in transactions.end_segment(path)]
    else:
        transactions.forget()
    report.damage += _check_time_index(path, time_index)
    return report


def walk(path: str) -> Iterator[tuple[int, BatchHeader, memoryview] | Damage]:
    """(position, header, bytes) of each batch of a segment file; damage, if any, comes last.

    FileNotFoundError if it is gone, StorageError if it cannot be read.
    """
    try:
        file = OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError.of(path, error) from error
    position, data, start = 0, b"", 0
    looks = 0
    while True:
        at = position - start
        try:
            header = check_batch(data, at, from_producer=False)
        except BatchError as error:
            try:
                wanted = _READ_BYTES
                if len(data) - at >= HEADER_SIZE:
                    wanted = max(wanted, min(read_header(data, at).size, _MOST_BYTES))
                fresh = os.pread(file.fd, wanted, position)
            except OSError as problem:
                raise StorageError.of(path, problem) from problem
            if not fresh:
                return
            if start != position or fresh != data:
                data, start = fresh, position
            elif looks < _LOOKS and len(fresh) < wanted:
                # It reaches to the end of the file, where a broker may be writing.
                looks += 1
                time.sleep(_LOOK_AGAIN_S)
            else:
                yield Damage(path, position, str(error))
                return
            continue
        looks = 0
        yield position, header, memoryview(data)[at : at + header.size]
        position += header.size


def _content(path: str, suffix: str) -> bytes:
    try:
        with open(path.removesuffix(LOG_SUFFIX) + suffix, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _offset_entries(content: bytes) -> set[tuple[int, ...]]:
    return set(_OFFSET_PAIR.iter_unpack(content[: len(content) // OFFSET_ENTRY * OFFSET_ENTRY]))


def _check_offset_index(path: str, content: bytes, unmet: set[tuple[int, ...]]) -> Iterator[Damage]:
    """Every entry must name a batch: its last offset and its position. `unmet` do not."""
    index = path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
    whole = len(content) // OFFSET_ENTRY * OFFSET_ENTRY
    if whole != len(content):
        yield Damage(index, whole, "the last entry is torn", heals=True)
    for number, (delta, position) in enumerate(_OFFSET_PAIR.iter_unpack(content[:whole])):
        if (delta, position) in unmet:
            reason = f"no batch ends {delta} after the base at position {position}"
            yield Damage(index, number * OFFSET_ENTRY, reason, heals=True)
            return


def _check_time_index(path: str, content: bytes) -> Iterator[Damage]:
    """Timestamps must rise, offsets must not fall."""
    index = path.removesuffix(LOG_SUFFIX) + TIME_INDEX_SUFFIX
    whole = len(content) // TIME_ENTRY * TIME_ENTRY
    if whole != len(content):
        yield Damage(index, whole, "the last entry is torn", heals=True)
    before = (-1, -1)
    for number, entry in enumerate(_TIME_PAIR.iter_unpack(content[:whole])):
        if entry[0] <= before[0] or entry[1] < before[1]:
            reason = f"entry {entry} does not follow {before}"
            yield Damage(index, number * TIME_ENTRY, reason, heals=True)
            return
        before = entry
