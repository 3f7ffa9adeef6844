"""Reading for share groups: slices of the log, with the batches that are in them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from moldau.broker.net.outputs.page_cache import is_warm
from moldau.broker.settings.offset_reset import OffsetReset
from moldau.log.errors import StorageError
from moldau.log.files.open_files import Slice
from moldau.log.log import Log
from moldau.log.lookup import offset_for_time
from moldau.records.batch import HEADER, HEADER_SIZE, BatchHeader

# How much is read at a time to find the headers of small batches.
_CHUNK = 16 << 10
# How much of what is cold is read into the page cache at a time.
_AHEAD = 1 << 20


class Cold(Exception):
    """A piece of a slice that the page cache does not hold: to read it would hold the loop."""

    def __init__(self, piece: Slice) -> None:
        super().__init__()
        self.piece = piece


class FoundBatch(NamedTuple):
    """A batch within a slice: its header, and where it ends there."""

    header: BatchHeader
    end: int


def batches_of(found: Slice, *, may_block: bool = True) -> Iterator[FoundBatch]:
    """Go through the batches of a slice; as far as anybody asks, for each may take a read. Cold if
    that would have to wait for the disk and may not."""
    data, start, position = b"", 0, 0
    while position < found.size:
        at = position - start
        if at + HEADER_SIZE > len(data):
            wanted, place = min(_CHUNK, found.size - position), found.position + position
            if not may_block and not is_warm(found.file.fd, place, wanted):
                raise Cold(Slice(found.file, place, min(_AHEAD, found.size - position)))
            try:
                data = os.pread(found.file.fd, wanted, place)
            except OSError as error:
                raise StorageError.of("a segment", error) from error
            start, at = position, 0
            if len(data) < HEADER_SIZE:
                return
        header = BatchHeader._make(HEADER.unpack_from(data, at))
        position += header.size
        yield FoundBatch(header, position)


async def first_offset(log: Log, reset: OffsetReset, now_ms: int) -> int | None:
    """Return where a group begins that has no offset yet; None for the end of what it may see."""
    if reset.strategy == "earliest":
        return log.log_start
    if reset.strategy == "by_duration":
        found = await asyncio.to_thread(offset_for_time, log, now_ms - reset.age_ms)
        return None if found is None else found[0]
    return None


def aborted_ranges(log: Log, batches: Sequence[FoundBatch]) -> list[tuple[int, int]]:
    """Return the offsets, first and last, of batches whose transactions were aborted."""
    if not log.has_aborted or not batches:
        return []
    first, last = batches[0].header.base_offset, batches[-1].header.last_offset
    aborted = sorted(log.aborted_transactions(first, last + 1), key=lambda each: each[1])
    found: list[tuple[int, int]] = []
    producers: set[int] = set()
    for header, _ in batches:
        while aborted and aborted[0][1] <= header.last_offset:
            producers.add(aborted.pop(0)[0])
        if header.is_control:
            producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in producers:
            found.append((header.base_offset, header.last_offset))
    return found
