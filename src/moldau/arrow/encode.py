"""Arrow columns to the records sections of batches, compiled by numba.

Rows are put in the order of their partitions first; then each partition's records are written one
after another, as many as fit into a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from moldau.arrow.memory import copy_memory

F = TypeVar("F", bound=Callable[..., Any])
Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int32]
# An int to the reader, an int64 to the compiler.
Number = Any

_inline = cast(Callable[[F], F], numba.njit(inline="always"))
_kernel = cast(Callable[[F], F], numba.njit(cache=True, nogil=True))

# What a record takes besides key, value and headers, at most: seven varints and a byte.
_MOST_AROUND = 7 * 10 + 1
# The same for one header.
_MOST_AROUND_HEADER = 2 * 5

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)


@dataclass(frozen=True, slots=True)
class Column:
    """Bytes of variable length, as Arrow lays them out: `ends` has one number more than rows."""

    ends: Offsets
    data: Bytes
    there: NDArray[np.bool_]

    @classmethod
    def of(cls, array: pa.Array) -> Column:
        """From strings or binaries of any width."""
        plain = array.cast(pa.binary())
        _, ends, data = plain.buffers()
        size = len(plain)
        offsets = (
            np.frombuffer(ends, np.int32)[plain.offset : plain.offset + size + 1]
            if size
            else np.zeros(1, np.int32)
        )
        content = np.frombuffer(data, np.uint8) if data is not None and data.size else _NOTHING
        return cls(offsets, content, _there(plain))

    @staticmethod
    def numbers(array: pa.Array) -> Offsets:
        """Return the numbers of a column, -1 where there is none."""
        return np.asarray(array.fill_null(-1).to_numpy(zero_copy_only=False), np.int32)

    @classmethod
    def empty(cls, size: int) -> Column:
        """Return a column of nulls."""
        return cls(np.zeros(size + 1, np.int32), _NOTHING, np.zeros(size, np.bool_))


_NOTHING: Bytes = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of one topic."""

    keys: Column
    values: Column
    # Where each row's headers end among those of all, and their names and values.
    header_ends: Offsets
    header_names: Column
    header_values: Column

    @classmethod
    def of(cls, size: int, key: pa.Array | None, value: pa.Array, headers: pa.Array | None) -> Rows:
        keys = Column.empty(size) if key is None else Column.of(key)
        if headers is None or not size:
            none = Column.empty(0)
            return cls(keys, Column.of(value), np.zeros(size + 1, np.int32), none, none)
        # Counted from lengths: a null list may have entries behind it.
        counts = np.nan_to_num(headers.value_lengths().to_numpy(zero_copy_only=False)).astype(
            np.int32
        )
        ends = np.zeros(size + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        items = headers.flatten()
        names, values = items.field("key"), items.field("value")
        return cls(keys, Column.of(value), ends, Column.of(names), Column.of(values))

    def sizes(self) -> NDArray[np.int64]:
        """Return an upper bound of each record's bytes."""
        total = np.diff(self.keys.ends).astype(np.int64) + np.diff(self.values.ends) + _MOST_AROUND
        if len(self.header_names.ends) > 1:
            each = (
                np.diff(self.header_names.ends).astype(np.int64)
                + np.diff(self.header_values.ends)
                + _MOST_AROUND_HEADER
            )
            summed = np.concatenate(([0], np.cumsum(each)))
            total += summed[self.header_ends[1:]] - summed[self.header_ends[:-1]]
        return total


def _there(array: pa.Array) -> NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def partitions_by_key(keys: Column, count: int, first: int, run: int) -> Offsets:
    """Return the partition of each row: by its key, as Java's client has it.

    Rows without a key go to one partition after the other from `first` on, `run` rows to each.
    """
    homes = np.empty(len(keys.there), np.int32)
    _place(keys.ends, keys.data, keys.there, count, first, run, homes)
    return homes


def sections(rows: Rows, homes: Offsets, most_bytes: int) -> Iterator[tuple[int, bytes, int]]:
    """Return (partition, records, count) for the batches of these rows, each of `most_bytes` at
    most, or of a single record.
    """
    if not len(homes):
        return
    order = np.argsort(homes, kind="stable").astype(np.int64)
    sizes = rows.sizes()
    placed = homes[order]
    starts = np.flatnonzero(np.diff(placed, prepend=-1))
    for begin, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        at = int(begin)
        while at < end:
            ahead = np.cumsum(sizes[order[at:end]])
            many = max(int(np.searchsorted(ahead, most_bytes, side="right")), 1)
            out = np.empty(int(ahead[many - 1]), np.uint8)
            size = _encode(
                order[at : at + many],
                rows.keys.ends, rows.keys.data, rows.keys.there,
                rows.values.ends, rows.values.data, rows.values.there,
                rows.header_ends,
                rows.header_names.ends, rows.header_names.data,
                rows.header_values.ends, rows.header_values.data, rows.header_values.there,
                out,
            )  # fmt: skip
            yield int(placed[at]), out[:size].tobytes(), many
            at += many


@_inline
def _put_varint(out: Bytes, at: Number, value: Number) -> Number:
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest > np.uint64(0x7F):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@_inline
def _varint_size(value: Number) -> Number:
    rest = np.uint64((value << 1) ^ (value >> 63)) >> np.uint64(7)
    size = 1
    while rest:
        size += 1
        rest >>= np.uint64(7)
    return size


@_inline
def _put_bytes(out: Bytes, at: Number, data: Bytes, start: Number, size: Number) -> Number:
    if size > 0:
        copy_memory(out.ctypes.data + at, data.ctypes.data + start, size)
    return at + max(size, 0)


@_kernel
def _encode(
    order: NDArray[np.int64],
    key_ends: Offsets,
    key_data: Bytes,
    key_there: NDArray[np.bool_],
    value_ends: Offsets,
    value_data: Bytes,
    value_there: NDArray[np.bool_],
    header_ends: Offsets,
    name_ends: Offsets,
    name_data: Bytes,
    content_ends: Offsets,
    content_data: Bytes,
    content_there: NDArray[np.bool_],
    out: Bytes,
) -> int:
    """Write the records of these rows to `out`, which has room for them; how many bytes.

    A record's length precedes it, so its size is added up first.
    """
    at: Number = np.int64(0)
    for delta in range(len(order)):
        row = order[delta]
        key_from, value_from = np.int64(key_ends[row]), np.int64(value_ends[row])
        key_size = np.int64(key_ends[row + 1]) - key_from if key_there[row] else np.int64(-1)
        value_size = (
            np.int64(value_ends[row + 1]) - value_from if value_there[row] else np.int64(-1)
        )
        first, last = np.int64(header_ends[row]), np.int64(header_ends[row + 1])
        size = (
            2
            + _varint_size(np.int64(delta))
            + _varint_size(key_size)
            + max(key_size, 0)
            + _varint_size(value_size)
            + max(value_size, 0)
            + _varint_size(last - first)
        )
        for header in range(first, last):
            name_size = np.int64(name_ends[header + 1]) - np.int64(name_ends[header])
            content_size = np.int64(-1)
            if content_there[header]:
                content_size = np.int64(content_ends[header + 1]) - np.int64(content_ends[header])
            size += _varint_size(name_size) + name_size
            size += _varint_size(content_size) + max(content_size, 0)
        at = _put_varint(out, at, np.int64(size))
        # No attributes, and the batch's own timestamp.
        out[at] = 0
        out[at + 1] = 0
        at = _put_varint(out, at + 2, np.int64(delta))
        at = _put_varint(out, at, key_size)
        at = _put_bytes(out, at, key_data, key_from, key_size)
        at = _put_varint(out, at, value_size)
        at = _put_bytes(out, at, value_data, value_from, value_size)
        at = _put_varint(out, at, last - first)
        for header in range(first, last):
            name_from = np.int64(name_ends[header])
            name_size = np.int64(name_ends[header + 1]) - name_from
            at = _put_varint(out, at, name_size)
            at = _put_bytes(out, at, name_data, name_from, name_size)
            content_from = np.int64(content_ends[header])
            content_size = np.int64(-1)
            if content_there[header]:
                content_size = np.int64(content_ends[header + 1]) - content_from
            at = _put_varint(out, at, content_size)
            at = _put_bytes(out, at, content_data, content_from, content_size)
    return at  # type: ignore[no-any-return]


@_inline
def _murmur2(data: Bytes, start: Number, size: Number) -> Number:
    mixed = _SEED ^ np.uint32(size)
    words = size // 4
    for word in range(words):
        at = start + word * 4
        k = (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        k = np.uint32(k * _M)
        k ^= k >> np.uint32(24)
        k = np.uint32(k * _M)
        mixed = np.uint32(mixed * _M)
        mixed ^= k
    tail = start + words * 4
    left = size - words * 4
    if left == 3:
        mixed ^= np.uint32(data[tail + 2]) << np.uint32(16)
    if left >= 2:
        mixed ^= np.uint32(data[tail + 1]) << np.uint32(8)
    if left >= 1:
        mixed ^= np.uint32(data[tail])
        mixed = np.uint32(mixed * _M)
    mixed ^= mixed >> np.uint32(13)
    mixed = np.uint32(mixed * _M)
    mixed ^= mixed >> np.uint32(15)
    return mixed


@_kernel
def _place(
    ends: Offsets,
    data: Bytes,
    there: NDArray[np.bool_],
    count: int,
    first: int,
    run: int,
    homes: Offsets,
) -> None:
    without = 0
    for row in range(len(homes)):
        if there[row]:
            start = np.int64(ends[row])
            mixed = _murmur2(data, start, np.int64(ends[row + 1]) - start)
            homes[row] = np.int64(mixed & np.uint32(0x7FFFFFFF)) % count
        else:
            homes[row] = (first + without // run) % count
            without += 1
