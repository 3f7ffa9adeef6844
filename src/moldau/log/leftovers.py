"""Leftovers of an interrupted change in a log's folder."""

from __future__ import annotations

import logging
import os

from moldau.log.segments.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_FILE,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
)
from moldau.records.batch import HEADER_SIZE, read_header

logger = logging.getLogger("moldau.log")


def tidy(folder: str, names: list[str]) -> list[str]:
    """Remove what a crash left half done, complete what it left nearly done; the names then."""
    odd = [
        name
        for name in names
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp"))
    ]
    if not odd:
        return names
    cleaned = [_offset_of(name) for name in odd if name.endswith(CLEANED_SUFFIX)]
    swaps = []
    for name in odd:
        if name.endswith(SWAP_SUFFIX) and _offset_of(name) < min(cleaned, default=2**63):
            swaps.append(name)
        else:
            os.unlink(f"{folder}/{name}")
    # A `.swap` file is whole and replaces all segments that it covers: KAFKA-6264.
    replaced: list[tuple[int, int]] = []
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base = _offset_of(name)
            replaced.append((base, _end_of_file(f"{folder}/{name}", base)))
    for name in names:
        match = SEGMENT_FILE.fullmatch(name)
        if match is None or match[2] == SNAPSHOT_SUFFIX:
            continue
        if any(base <= int(match[1]) < end for base, end in replaced):
            os.unlink(f"{folder}/{name}")
    for name in swaps:
        os.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP_SUFFIX)}")
    logger.warning("%s: removed or completed %d files of an interrupted change", folder, len(odd))
    return os.listdir(folder)


def _offset_of(name: str) -> int:
    digits = name.split(".", 1)[0]
    return int(digits) if digits.isdigit() else 0


def _end_of_file(path: str, base: int) -> int:
    """Return the offset after the last batch of a file that is named unlike a segment."""
    end = base + 1
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position + HEADER_SIZE <= size:
            header = read_header(os.pread(file.fileno(), HEADER_SIZE, position))
            if header.size < HEADER_SIZE or position + header.size > size:
                break
            end = header.last_offset + 1
            position += header.size
    return end
