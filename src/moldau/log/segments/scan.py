"""Reading a segment batch by batch, every checksum included. Any thread; blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator

from moldau.log.errors import StorageError
from moldau.log.segments.segment import Segment
from moldau.records.batch import HEADER_SIZE, BatchError, BatchHeader, check_batch, read_header

_READ_BYTES = 1 << 20


def scan(segment: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of each batch from `position` on.

    BatchError at the first that is not sound, with its position in the file.
    """
    file = segment.open()
    end = segment.size
    data, start = b"", position
    try:
        while position < end:
            at = position - start
            needed = HEADER_SIZE
            if at + HEADER_SIZE <= len(data):
                needed = max(read_header(data, at).size, HEADER_SIZE)
            if at + needed > len(data) and position + needed <= end:
                data = os.pread(file.fd, min(max(_READ_BYTES, needed), end - position), position)
                start, at = position, 0
                if len(data) >= HEADER_SIZE:
                    needed = max(read_header(data).size, HEADER_SIZE)
                    if len(data) < needed <= end - position:
                        data = os.pread(file.fd, needed, position)
            try:
                header = check_batch(data, at, from_producer=False)
            except BatchError as error:
                error.position = position
                raise
            yield position, header, memoryview(data)[at : at + header.size]
            position += header.size
    except OSError as error:
        raise StorageError.of(segment.path, error) from error
