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

from moldau.spark.memory import copy_memory

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

# The columns of a table of batches, as `scan_batches` fills it.
POSITION, SIZE, BASE_OFFSET, LAST_DELTA, ATTRIBUTES, BASE_TIME, MAX_TIME, PRODUCER, COUNT, CRC = (
    range(10)
)
TABLE_WIDTH = 10

# The columns of a table of sections: the records of one batch, decompressed.
START, END, ROWS, FIRST_OFFSET, SPAN, FIRST_TIME, APPEND_TIME, TIME_TYPE = range(8)
SECTION_WIDTH = 8

# What is done so far, kept between the sections of one Arrow batch.
(
    ROW, KEY_BYTES, KEY_NULLS, VALUE_BYTES, VALUE_NULLS,
    HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, HEADER_NULLS, LIST_NULLS, BAD_SECTION,
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
    """How many whole batches lie in the buffer, by their lengths alone."""
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
    """Fills one row per whole batch; OK, or what is wrong with the batch after the filled rows."""
    position, end, row = 0, len(buffer), 0
    while end - position >= PREFIX_SIZE + 5:
        if buffer[position + 16] != 2:
            return BAD_MAGIC
        size = _int32(buffer, position + 8) + PREFIX_SIZE
        if size < HEADER_SIZE:
            return BAD_LENGTH
        if size > end - position or row >= len(table):
            break
        table[row, POSITION] = position
        table[row, SIZE] = size
        table[row, BASE_OFFSET] = _int64(buffer, position)
        table[row, CRC] = _int32(buffer, position + 17) & 0xFFFFFFFF
        table[row, ATTRIBUTES] = np.int64(buffer[position + 21]) << 8 | buffer[position + 22]
        table[row, LAST_DELTA] = _int32(buffer, position + 23)
        if table[row, LAST_DELTA] < 0:
            return BAD_LENGTH
        table[row, BASE_TIME] = _int64(buffer, position + 27)
        table[row, MAX_TIME] = _int64(buffer, position + 35)
        table[row, PRODUCER] = _int64(buffer, position + 43)
        table[row, COUNT] = _int32(buffer, position + 57)
        position += size
        row += 1
    return OK


@_inline
def _varint(buffer: Bytes, at: Number, stop: Number) -> tuple[Number, Number]:
    """A zigzag varint and the position after it; position -1 when it does not end before `stop`."""
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
def decode_sections(
    buffer: Bytes,
    sections: Ints,
    first: int,
    until: int,
    cursor: Ints,
    offsets: Ints,
    times: Ints,
    time_types: Offsets,
    with_keys: bool,
    key_ends: Offsets,
    key_data: Bytes,
    key_there: Bytes,
    with_values: bool,
    value_ends: Offsets,
    value_data: Bytes,
    value_there: Bytes,
    with_headers: bool,
    header_ends: Offsets,
    header_there: Bytes,
    name_ends: Offsets,
    name_data: Bytes,
    content_ends: Offsets,
    content_data: Bytes,
    content_there: Bytes,
) -> int:
    """Appends the records with `first <= offset < until` to the columns; OK or what is wrong.

    `*_ends` have one entry more than rows (Arrow's offsets), `*_data` room for all bytes of all
    sections: callers size them so, and the checks here make sure that a record's parts lie in it.
    `value_data` may be the part of `buffer` that begins with the first section: values only move
    towards its start, over what has been read, and what follows a value stays where it is.
    """
    row, key_at, value_at = cursor[ROW], cursor[KEY_BYTES], cursor[VALUE_BYTES]
    headers, name_at = cursor[HEADERS], cursor[HEADER_KEY_BYTES]
    content_at = cursor[HEADER_VALUE_BYTES]
    for section in range(len(sections)):
        position, end = sections[section, START], sections[section, END]
        if position < 0 or end > len(buffer):
            cursor[BAD_SECTION] = section
            return BAD_LENGTH
        status = OK
        for _ in range(sections[section, ROWS]):
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
            if offset_delta < 0 or offset_delta > sections[section, SPAN]:
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
            offset = sections[section, FIRST_OFFSET] + offset_delta
            if offset < first or offset >= until:
                continue
            if row >= len(offsets):
                status = NO_ROOM
                break
            time = sections[section, APPEND_TIME]
            if sections[section, TIME_TYPE] == 0:
                time = sections[section, FIRST_TIME] + time_delta
            if time > LATEST_MS or time < -LATEST_MS:
                status = BAD_TIME
                break
            offsets[row] = offset
            times[row] = time * 1000
            time_types[row] = sections[section, TIME_TYPE]
            if with_keys:
                if key_size > 0:
                    _copy(buffer, key_from, key_data, key_at, key_size)
                    key_at += key_size
                key_there[row] = key_size >= 0
                cursor[KEY_NULLS] += key_size < 0
                key_ends[row + 1] = key_at
            if with_values:
                if value_size > 0:
                    _copy(buffer, value_from, value_data, value_at, value_size)
                    value_at += value_size
                value_there[row] = value_size >= 0
                cursor[VALUE_NULLS] += value_size < 0
                value_ends[row + 1] = value_at
            if with_headers:
                count, at = _varint(buffer, value_from + max(value_size, 0), stop)
                # A header takes two bytes at least.
                if at < 0 or count < 0 or count > (stop - at) // 2:
                    status = BAD_HEADER
                    break
                header_there[row] = count > 0
                cursor[LIST_NULLS] += count == 0
                for _ in range(count):
                    size, at = _varint(buffer, at, stop)
                    if at < 0 or size < 0 or size > stop - at:
                        status = BAD_HEADER
                        break
                    _copy(buffer, at, name_data, name_at, size)
                    name_at += size
                    size, at = _varint(buffer, at + size, stop)
                    if at < 0 or size < -1 or size > stop - at:
                        status = BAD_HEADER
                        break
                    if size > 0:
                        _copy(buffer, at, content_data, content_at, size)
                        content_at += size
                        at += size
                    content_there[headers] = size >= 0
                    cursor[HEADER_NULLS] += size < 0
                    headers += 1
                    name_ends[headers] = name_at
                    content_ends[headers] = content_at
                if status != OK:
                    break
                header_ends[row + 1] = headers
            row += 1
        if status != OK:
            cursor[BAD_SECTION] = section
            return status
    cursor[ROW], cursor[KEY_BYTES], cursor[VALUE_BYTES] = row, key_at, value_at
    cursor[HEADERS], cursor[HEADER_KEY_BYTES] = headers, name_at
    cursor[HEADER_VALUE_BYTES] = content_at
    return OK
