"""The loop over the records of a batch, compiled by numba.

Compiled code has no bounds checks of its own: every read is checked here against the end of what
may be read, and nothing in the bytes is believed. numba keeps what it compiled on disk, so only the
first process on a machine waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from moldau.schemas.door.programs import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DOUBLE,
    ENUM,
    FLOAT,
    INT,
    LONG,
    MAP,
    NULL,
    RECORD,
    STRING,
    UNION,
)

F = TypeVar("F", bound=Callable[..., Any])
Octets = NDArray[np.uint8]
Ints = NDArray[np.int64]
# An int to the reader, an int64 to the compiler.
Number = Any

_kernel = cast(Callable[[F], F], numba.njit(cache=True, nogil=True))

# What is wrong with a record.
(
    FINE, TOO_SHORT, NO_MAGIC, UNKNOWN_ID, NOT_OF_SCHEMA, LEFT_OVER, ELSEWHERE, UNKNOWN_GUID,
) = range(8)  # fmt: skip
# The columns of what is found: the problem, the schema's id, where the payload is behind the name,
# and what a header has behind it.
PROBLEM, SCHEMA, START, END, INDEX_START, INDEX_END = range(6)
FOUND_WIDTH = 6
# A schema that is not Avro has this root: others check it.
NOT_AVRO = -1
BAD = -1
DEEPEST = 200


@_kernel
def _varint(data: Octets, at: Number, end: Number, most: Number) -> tuple[Number, Number]:
    """Return a zigzag number of at most so many bytes, and where it ends; BAD if it is none."""
    value = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(most):
        if at >= end:
            return np.int64(0), np.int64(BAD)
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            signed = np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
            return signed, np.int64(at)
        shift += np.uint64(7)
    return np.int64(0), np.int64(BAD)


@_kernel
def _is_utf8(data: Octets, at: Number, end: Number) -> bool:
    while at < end:
        first = data[at]
        at += 1
        if first < 0x80:
            continue
        low, high = np.uint8(0x80), np.uint8(0xBF)
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = np.uint8(0xA0)
            elif first == 0xED:
                high = np.uint8(0x9F)
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = np.uint8(0x90)
            elif first == 0xF4:
                high = np.uint8(0x8F)
        else:
            return False
        if end - at < more:
            return False
        for _ in range(more):
            if not low <= data[at] <= high:
                return False
            low, high = np.uint8(0x80), np.uint8(0xBF)
            at += 1
    return True


@_kernel
def _sized(data: Octets, at: Number, end: Number, is_text: bool) -> Number:
    size, at = _varint(data, at, end, 10)
    if at < 0 or size < 0 or size > end - at:
        return np.int64(BAD)
    if is_text and not _is_utf8(data, at, at + size):
        return np.int64(BAD)
    return at + size


@_kernel
def _leaf(data: Octets, at: Number, end: Number, kind: Number, number: Number) -> Number:
    """Return where a value without others in it ends; BAD if it is none."""
    if kind == NULL:
        return at
    if kind in (LONG, INT, ENUM):
        # As Java reads them: one that is written longer than it can be is none.
        value, after = _varint(data, at, end, 10 if kind == LONG else 5)
        if after < 0:
            return np.int64(BAD)
        if kind == INT and not -(1 << 31) <= value < (1 << 31):
            return np.int64(BAD)
        if kind == ENUM and not 0 <= value < number:
            return np.int64(BAD)
        return after
    if kind in (STRING, BYTES):
        return _sized(data, at, end, kind == STRING)
    size = np.int64(number)
    if kind == BOOLEAN:
        size = np.int64(1)
    elif kind == FLOAT:
        size = np.int64(4)
    elif kind == DOUBLE:
        size = np.int64(8)
    if end - at < size or (kind == BOOLEAN and data[at] > 1):
        return np.int64(BAD)
    return at + size


@_kernel
def _value(
    data: Octets,
    at: Number,
    end: Number,
    nodes: Ints,
    children: Ints,
    root: Number,
    stack: Ints,
) -> Number:
    """Return where the value of a schema ends; BAD if there is none.

    A frame of the stack is a node that has begun, the children or items that are left of it, and
    where its current item began.
    """
    depth = 0
    node = root
    while True:
        kind = nodes[node, 0]
        if kind == RECORD:
            if depth >= DEEPEST:
                return np.int64(BAD)
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = node, nodes[node, 2], at
            depth += 1
        elif kind in (ARRAY, MAP):
            if depth >= DEEPEST:
                return np.int64(BAD)
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = node, 0, -1
            depth += 1
        elif kind == UNION:
            branch, at = _varint(data, at, end, 5)
            if at < 0 or not 0 <= branch < nodes[node, 2]:
                return np.int64(BAD)
            node = children[nodes[node, 1] + branch]
            continue
        else:
            at = _leaf(data, at, end, kind, nodes[node, 1])
            if at < 0:
                return np.int64(BAD)
        # On to the next child of what is open, or out of it.
        is_next = False
        while depth > 0:
            top = depth - 1
            around = stack[top, 0]
            left = stack[top, 1]
            if nodes[around, 0] == RECORD:
                if left == 0:
                    depth -= 1
                    continue
                stack[top, 1] = left - 1
                node = children[nodes[around, 1] + nodes[around, 2] - left]
                is_next = True
                break
            if left > 0 and stack[top, 2] == at:
                # Items that take no bytes are all alike, and there may be a billion of them.
                left = 0
            if left == 0:
                left, at = _varint(data, at, end, 10)
                if at < 0:
                    return np.int64(BAD)
                if left < 0:
                    size, at = _varint(data, at, end, 10)
                    if at < 0 or size < 0 or size > end - at:
                        return np.int64(BAD)
                    left = -left
                    if left < 0:
                        return np.int64(BAD)
                if left == 0:
                    depth -= 1
                    continue
            stack[top, 1] = left - 1
            stack[top, 2] = at
            if nodes[around, 0] == MAP:
                at = _sized(data, at, end, True)
                if at < 0:
                    return np.int64(BAD)
            node = nodes[around, 1]
            is_next = True
            break
        if not is_next:
            return at


@_kernel
def _big_endian(data: Octets, at: Number, size: Number) -> Number:
    value = np.uint64(0)
    for place in range(at, at + size):
        value = value << np.uint64(8) | np.uint64(data[place])
    return np.int64(value)


@_kernel
def _schema(
    data: Octets, at: Number, end: Number, ids: Ints, guids: Ints
) -> tuple[Number, Number, Number]:
    """Return what is wrong with a name, the row of the schema that it names, and where it ends."""
    if end - at < 5:
        return TOO_SHORT, np.int64(-1), at
    if data[at] == 0:
        named = _big_endian(data, at + 1, 4)
        row = np.searchsorted(ids, named)
        if row >= len(ids) or ids[row] != named:
            return UNKNOWN_ID, named, at + 5
        return FINE, row, at + 5
    if data[at] != 1:
        return NO_MAGIC, np.int64(-1), at
    if end - at < 17:
        return TOO_SHORT, np.int64(-1), at
    high, low = _big_endian(data, at + 1, 8), _big_endian(data, at + 9, 8)
    for place in range(len(ids)):
        if guids[place, 0] == high and guids[place, 1] == low:
            return FINE, np.int64(place), at + 17
    return UNKNOWN_GUID, np.int64(-1), at + 17


@_kernel
def _header(data: Octets, at: Number, end: Number, name: Octets) -> tuple[Number, Number]:
    """Return where the last header of this name has its value: -1 if there is none, or it has
    none, BAD twice where there are no headers."""
    count, at = _varint(data, at, end, 5)
    if at < 0 or count < 0:
        return np.int64(BAD), np.int64(BAD)
    found, until = np.int64(-1), np.int64(0)
    for _ in range(count):
        size, at = _varint(data, at, end, 5)
        if at < 0 or size < 0 or size > end - at:
            return np.int64(BAD), np.int64(BAD)
        is_it = size == len(name)
        if is_it:
            for place in range(size):
                if data[at + place] != name[place]:
                    is_it = False
                    break
        at += size
        size, at = _varint(data, at, end, 5)
        if at < 0 or size > end - at:
            return np.int64(BAD), np.int64(BAD)
        if is_it:
            found, until = (at, at + size) if size >= 0 else (np.int64(-1), np.int64(0))
        if size > 0:
            at += size
    return found, until


@_kernel
def check_records(
    data: Octets,
    is_key: bool,
    name: Octets,
    ids: Ints,
    guids: Ints,
    roots: Ints,
    nodes: Ints,
    children: Ints,
    found: Ints,
) -> Number:
    """Check the key or the value of each record in the uncompressed records of a batch.

    The header with this `name` says of what schema it is, or else its own first bytes. A row of
    `found` has the columns above; START is -1 where there is no key or value. Returns how many
    records are not fine; BAD where the bytes are no records.
    """
    stack = np.zeros((DEEPEST, 3), dtype=np.int64)
    at = np.int64(0)
    count = 0
    for row in range(len(found)):
        size, at = _varint(data, at, len(data), 5)
        if at < 0 or size < 1 or size > len(data) - at:
            return np.int64(BAD)
        end = at + size
        inner = at + 1
        _, inner = _varint(data, inner, end, 10)
        if inner < 0:
            return np.int64(BAD)
        _, inner = _varint(data, inner, end, 5)
        if inner < 0:
            return np.int64(BAD)
        start, length = np.int64(0), np.int64(-1)
        for part in range(2):
            size, inner = _varint(data, inner, end, 5)
            if inner < 0 or size > end - inner:
                return np.int64(BAD)
            if is_key == (part == 0):
                start, length = inner, size
            if size > 0:
                inner += size
        at = end
        found[row, PROBLEM] = FINE
        found[row, START] = -1
        if length < 0:
            continue
        named, until = _header(data, inner, end, name)
        if until < 0:
            return np.int64(BAD)
        stop = start + length
        if named >= 0:
            problem, schema, after = _schema(data, named, until, ids, guids)
            found[row, INDEX_START], found[row, INDEX_END] = after, until
        else:
            problem, schema, after = _schema(data, start, stop, ids, guids)
            found[row, INDEX_START], found[row, INDEX_END] = after, after
            start = after
        found[row, START], found[row, END] = start, stop
        if problem == FINE:
            root = roots[schema]
            found[row, SCHEMA] = ids[schema]
            if root == NOT_AVRO:
                problem = ELSEWHERE
            elif found[row, INDEX_START] != found[row, INDEX_END]:
                problem = LEFT_OVER
            else:
                after = _value(data, start, stop, nodes, children, root, stack)
                if after < 0:
                    problem = NOT_OF_SCHEMA
                elif after != stop:
                    problem = LEFT_OVER
        else:
            found[row, SCHEMA] = schema
        found[row, PROBLEM] = problem
        if problem != FINE:
            count += 1
    return np.int64(count)
