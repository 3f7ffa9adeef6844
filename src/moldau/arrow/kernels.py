"""The loops over record batches, compiled by numba.

Compiled code has no bounds checks of its own: every read is checked here against the end of what
may be read, and nothing in the bytes is believed. A kernel stops at the first lie and says which.
numba keeps what it compiled on disk, so only the first process on a machine waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from moldau.arrow.memory import copy_memory

F = TypeVar("F", bound=Callable[..., Any])
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Offsets = NDArray[np.int32]
# An int to the reader, an int64 to the compiler.
Number = Any

_inline = cast(Callable[[F], F], numba.njit(inline="always"))
_kernel = cast(Callable[[F], F], numba.njit(cache=True, nogil=True))

HEADER_SIZE = 61
PREFIX_SIZE = 12

# The columns of a table of batches: where the records of each lie, and what its header says.
START, END, COUNT, BASE_OFFSET, LAST_DELTA, ATTRIBUTES, BASE_TIME, MAX_TIME, PRODUCER, CRC = range(
    10
)
TABLE_WIDTH = 10
APPEND_TIME_BIT = 0x08

# The columns that a batch of Arrow takes from here, by what they are made of.
OFFSETS, TIMES = range(2)
KEY_ENDS, VALUE_ENDS, LIST_ENDS, TIME_TYPES = range(4)
KEYS, VALUES, LISTS = range(3)
NAMES, CONTENTS = range(2)

# The progress, kept between the tables of one Arrow batch.
(
    ROW, KEY_BYTES, KEY_NULLS, VALUE_BYTES, VALUE_NULLS,
    HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, HEADER_NULLS, LIST_NULLS, BAD_BATCH,
) = range(11)  # fmt: skip
CURSOR_WIDTH = 11

OK = 0
BAD_MAGIC = 1
BAD_LENGTH = 2
BAD_RECORD = 3
BAD_OFFSET = 4
BAD_TIME = 5
BAD_HEADER = 6
NO_ROOM = 7

# Beyond this, milliseconds do not fit as microseconds.
LATEST_MS = (1 << 63) // 1000 - 1


@_inline
def _int32(buffer: Bytes, at: Number) -> Number:
    value = (
        np.int64(buffer[at]) << 24
        | np.int64(buffer[at + 1]) << 16
        | np.int64(buffer[at + 2]) << 8
        | np.int64(buffer[at + 3])
    )
    return value - ((value >> 31) << 32)


@_inline
def _int64(buffer: Bytes, at: Number) -> Number:
    value = np.int64(0)
    for i in range(8):
        value = (value << 8) | np.int64(buffer[at + i])
    return value


@_kernel
def count_batches(buffer: Bytes) -> int:
    """Return how many whole batches lie in the buffer, by their lengths alone."""
    position, end, count = 0, len(buffer), 0
    while end - position >= HEADER_SIZE:
        size = _int32(buffer, position + 8) + PREFIX_SIZE
        if size < HEADER_SIZE or size > end - position:
            break
        position += size
        count += 1
    return count


@_kernel
def scan_batches(buffer: Bytes, table: Ints) -> int:
    """Fill one row per whole batch while there are rows; how many.

    Less than 0 is what is wrong with the batch after those that were filled.
    """
    position, end, row = 0, len(buffer), 0
    while end - position >= PREFIX_SIZE + 5 and row < len(table):
        if buffer[position + 16] != 2:
            return -BAD_MAGIC
        size = _int32(buffer, position + 8) + PREFIX_SIZE
        if size < HEADER_SIZE:
            return -BAD_LENGTH
        if size > end - position:
            break
        table[row, START] = position + HEADER_SIZE
        table[row, END] = position + size
        table[row, BASE_OFFSET] = _int64(buffer, position)
        table[row, CRC] = _int32(buffer, position + 17) & 0xFFFFFFFF
        table[row, ATTRIBUTES] = np.int64(buffer[position + 21]) << 8 | buffer[position + 22]
        table[row, LAST_DELTA] = _int32(buffer, position + 23)
        if table[row, LAST_DELTA] < 0:
            return -BAD_LENGTH
        table[row, BASE_TIME] = _int64(buffer, position + 27)
        table[row, MAX_TIME] = _int64(buffer, position + 35)
        table[row, PRODUCER] = _int64(buffer, position + 43)
        table[row, COUNT] = _int32(buffer, position + 57)
        position += size
        row += 1
    return row


@_inline
def _varint(buffer: Bytes, at: Number, stop: Number) -> tuple[Number, Number]:
    """Return a zigzag varint and the position after it; position -1 when it does not end before
    `stop`."""
    if at >= stop:
        return np.int64(0), np.int64(-1)
    byte = np.uint64(buffer[at])
    at += 1
    if byte < 0x80:
        return np.int64(byte >> np.uint64(1)) ^ -np.int64(byte & np.uint64(1)), np.int64(at)
    value = byte & np.uint64(0x7F)
    shift = np.uint64(7)
    while shift < 70:
        if at >= stop:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(buffer[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), np.int64(at)
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@_inline
def _copy(source: Bytes, at: Number, target: Bytes, to: Number, size: Number) -> None:
    copy_memory(target.ctypes.data + to, source.ctypes.data + at, size)


@_kernel
def decode_batches(
    buffer: Bytes,
    table: Ints,
    first: int,
    until: int,
    cursor: Ints,
    longs: Ints,
    ints: Offsets,
    there: Bytes,
    with_keys: bool,
    key_data: Bytes,
    with_values: bool,
    value_data: Bytes,
    with_headers: bool,
    header_ends: Offsets,
    header_data: Bytes,
    header_there: Bytes,
) -> int:
    """Append the records with `first <= offset < until` to the columns; OK or what is wrong.

    `longs`, `ints` and `there` have a line per column, as long as there are rows; `ints` one more,
    as Arrow's offsets need it, and `header_ends` likewise, for all headers. `*_data` have room for
    all bytes of all batches: callers size them so, and the checks here make sure that a record's
    parts lie in it. `value_data` may be the part of `buffer` that begins with the first batch's
    records: values only move towards its start, over what has been read, and what follows stays.
    """
    row, key_at, value_at = cursor[ROW], cursor[KEY_BYTES], cursor[VALUE_BYTES]
    headers, name_at = cursor[HEADERS], cursor[HEADER_KEY_BYTES]
    content_at = cursor[HEADER_VALUE_BYTES]
    most_rows = min(longs.shape[1], ints.shape[1] - 1, there.shape[1])
    for batch in range(len(table)):
        position, end = table[batch, START], table[batch, END]
        if position < 0 or end > len(buffer):
            cursor[BAD_BATCH] = batch
            return BAD_LENGTH
        time_type = np.int64((table[batch, ATTRIBUTES] & APPEND_TIME_BIT) != 0)
        status = OK
        for _ in range(table[batch, COUNT]):
            length, position = _varint(buffer, position, end)
            if position < 0 or length < 6 or length > end - position:
                status = BAD_RECORD
                break
            stop = position + length
            time_delta, position = _varint(buffer, position + 1, stop)
            if position < 0:
                status = BAD_RECORD
                break
            offset_delta, position = _varint(buffer, position, stop)
            if position < 0:
                status = BAD_RECORD
                break
            if offset_delta < 0 or offset_delta > table[batch, LAST_DELTA]:
                status = BAD_OFFSET
                break
            key_size, key_from = _varint(buffer, position, stop)
            if key_from < 0 or key_size < -1 or key_size > stop - key_from:
                status = BAD_RECORD
                break
            value_size, value_from = _varint(buffer, key_from + max(key_size, 0), stop)
            if value_from < 0 or value_size < -1 or value_size > stop - value_from:
                status = BAD_RECORD
                break
            position = stop
            offset = table[batch, BASE_OFFSET] + offset_delta
            if offset < first or offset >= until:
                continue
            if row >= most_rows:
                status = NO_ROOM
                break
            time = table[batch, MAX_TIME]
            if time_type == 0:
                time = table[batch, BASE_TIME] + time_delta
            if time > LATEST_MS or time < -LATEST_MS:
                status = BAD_TIME
                break
            longs[OFFSETS, row] = offset
            longs[TIMES, row] = time * 1000
            ints[TIME_TYPES, row] = time_type
            if with_keys:
                if key_size > 0:
                    _copy(buffer, key_from, key_data, key_at, key_size)
                    key_at += key_size
                there[KEYS, row] = key_size >= 0
                cursor[KEY_NULLS] += key_size < 0
                ints[KEY_ENDS, row + 1] = key_at
            if with_values:
                if value_size > 0:
                    _copy(buffer, value_from, value_data, value_at, value_size)
                    value_at += value_size
                there[VALUES, row] = value_size >= 0
                cursor[VALUE_NULLS] += value_size < 0
                ints[VALUE_ENDS, row + 1] = value_at
            if with_headers:
                count, at = _varint(buffer, value_from + max(value_size, 0), stop)
                # A header takes two bytes at least.
                if at < 0 or count < 0 or count > (stop - at) // 2:
                    status = BAD_HEADER
                    break
                there[LISTS, row] = count > 0
                cursor[LIST_NULLS] += count == 0
                for _ in range(count):
                    size, at = _varint(buffer, at, stop)
                    if at < 0 or size < 0 or size > stop - at:
                        status = BAD_HEADER
                        break
                    _copy(buffer, at, header_data[NAMES], name_at, size)
                    name_at += size
                    size, at = _varint(buffer, at + size, stop)
                    if at < 0 or size < -1 or size > stop - at:
                        status = BAD_HEADER
                        break
                    if size > 0:
                        _copy(buffer, at, header_data[CONTENTS], content_at, size)
                        content_at += size
                        at += size
                    header_there[headers] = size >= 0
                    cursor[HEADER_NULLS] += size < 0
                    headers += 1
                    header_ends[NAMES, headers] = name_at
                    header_ends[CONTENTS, headers] = content_at
                if status != OK:
                    break
                ints[LIST_ENDS, row + 1] = headers
            row += 1
        if status != OK:
            cursor[BAD_BATCH] = batch
            return status
    cursor[ROW], cursor[KEY_BYTES], cursor[VALUE_BYTES] = row, key_at, value_at
    cursor[HEADERS], cursor[HEADER_KEY_BYTES] = headers, name_at
    cursor[HEADER_VALUE_BYTES] = content_at
    return OK
