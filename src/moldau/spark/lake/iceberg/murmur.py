"""Murmur3, the 32-bit hash of x86 with the seed 0, over columns: Iceberg's buckets are made of it.

Strings are hashed where they lie, by a loop that numba compiles and keeps on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])
Hashes = NDArray[np.uint32]

_kernel = cast(Callable[[F], F], numba.njit(cache=True, nogil=True))
_inline = cast(Callable[[F], F], numba.njit(inline="always"))

_LOW = 0xFFFFFFFF


def hash_longs(values: NDArray[np.int64]) -> Hashes:
    """Hash each number as its eight bytes, little-endian."""
    rows = values.astype("<i8")
    ends = np.arange(0, 8 * len(rows) + 1, 8, dtype=np.int64)
    return _hash_all(rows.view(np.uint8), ends)


def hash_bytes(column: pa.Array) -> Hashes:
    """Hash each string or binary value as its bytes; what a null has is not said."""
    wide = column.cast(pa.large_binary())
    _, ends, content = wide.buffers()
    offsets = np.frombuffer(ends, np.int64, len(wide) + 1, wide.offset * 8)
    size = 0 if content is None else content.size
    data = np.frombuffer(content, np.uint8, size) if size else np.zeros(0, np.uint8)
    return _hash_all(data, offsets)


@_inline
def _mixed(block: Any) -> Any:
    block = (block * np.uint64(0xCC9E2D51)) & np.uint64(_LOW)
    block = ((block << np.uint64(15)) | (block >> np.uint64(17))) & np.uint64(_LOW)
    return (block * np.uint64(0x1B873593)) & np.uint64(_LOW)


@_kernel
def _hash_all(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> Hashes:
    low = np.uint64(_LOW)
    found = np.zeros(len(ends) - 1, np.uint32)
    for row in range(len(ends) - 1):
        start, end = ends[row], ends[row + 1]
        whole = start + ((end - start) // 4) * 4
        state = np.uint64(0)
        for at in range(start, whole, 4):
            block = (
                np.uint64(data[at])
                | (np.uint64(data[at + 1]) << np.uint64(8))
                | (np.uint64(data[at + 2]) << np.uint64(16))
                | (np.uint64(data[at + 3]) << np.uint64(24))
            )
            state ^= _mixed(block)
            state = ((state << np.uint64(13)) | (state >> np.uint64(19))) & low
            state = (state * np.uint64(5) + np.uint64(0xE6546B64)) & low
        if whole < end:
            tail = np.uint64(0)
            for at in range(end - 1, whole - 1, -1):
                tail = (tail << np.uint64(8)) | np.uint64(data[at])
            state ^= _mixed(tail)
        state ^= np.uint64(end - start)
        state = ((state ^ (state >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & low
        state = ((state ^ (state >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & low
        found[row] = state ^ (state >> np.uint64(16))
    return found
