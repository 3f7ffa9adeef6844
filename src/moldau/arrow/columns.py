"""The Arrow columns that kernels fill, and the memory for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from moldau.arrow import kernels
from moldau.arrow.kernels import Bytes, Ints, Offsets
from moldau.arrow.names import HEADERS

_NO_BYTES: Bytes = np.empty(0, np.uint8)
ARROW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(
        pa.field(
            "element",
            pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]),
        )
    ),
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns as Spark expects it: any difference is an error there."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])


# Arrow's binary columns count bytes in 32 bits.
MOST_BYTES = (1 << 31) - 1


class _Room:
    """Memory for columns of numbers, a line each, taken at once from Arrow's pool.

    That is used again sooner than fresh pages are touched.
    """

    def __init__(self, rows: int) -> None:
        # Arrow's offsets are one more, and lines should begin where Arrow aligns buffers.
        self._width = width = (rows + 16) & ~15
        longs, ints = 2, 4
        self._buffer = pa.allocate_buffer(width * (8 * longs + 4 * ints))
        self._ints_at = 8 * longs * width
        self.longs: Ints = np.ndarray((longs, width), np.int64, self._buffer)
        self.ints: Offsets = np.ndarray((ints, width), np.int32, self._buffer, self._ints_at)
        self.ints[:, 0] = 0

    def long_line(self, line: int) -> pa.Buffer:
        return self._buffer.slice(8 * line * self._width, 8 * self._width)

    def int_line(self, line: int) -> pa.Buffer:
        return self._buffer.slice(self._ints_at + 4 * line * self._width, 4 * self._width)


class _HeaderRoom:
    """The buffer for the headers of all records of a batch; the used part is copied."""

    def __init__(self, size: int) -> None:
        # A header takes two bytes at least.
        self.size = size
        self.ends: Offsets = np.zeros((2, size // 2 + 1), np.int32)
        self.data: Bytes = np.empty((2, size), np.uint8)
        self.there: Bytes = np.empty(size // 2, np.uint8)

    def array(self, line: int, count: int, size: int, nulls: int) -> pa.Array:
        parts = [
            _mask(self.there[:count], nulls),
            pa.py_buffer(self.ends[line, : count + 1].copy()),
            pa.py_buffer(self.data[line, :size].copy()),
        ]
        return pa.Array.from_buffers(pa.binary(), count, parts, nulls)


def _mask(there: Bytes, nulls: int) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(there, bitorder="little")) if nulls else None


class Columns:
    """Columns of one partition: `begin`, then `append` some batches, then `finish`."""

    def __init__(self, names: Sequence[str], topic: str, partition: int) -> None:
        self._schema = arrow_schema(names)
        makers: dict[str, Callable[[list[int]], pa.Array]] = {
            "key": self._keys,
            "value": self._values,
            "topic": partial(self._constant, "topic", topic),
            "partition": partial(self._constant, "partition", partition),
            "offset": partial(self._longs, kernels.OFFSETS, ARROW_TYPES["offset"]),
            "timestamp": partial(self._longs, kernels.TIMES, ARROW_TYPES["timestamp"]),
            "timestampType": self._time_types,
            HEADERS: self._header_lists,
        }
        self._makers = [makers[name] for name in names]
        self._has_keys, self._has_values, self._has_headers = (
            name in names for name in ("key", "value", HEADERS)
        )
        self._constants: dict[str, pa.Array] = {}
        self._room = _Room(0)
        # Keys and headers could take all of it, but are small as a rule: the room for them is kept,
        # and what was used of it is copied.
        self._there: Bytes = np.empty((3, 0), np.uint8)
        self._key_data = self._value_data = _NO_BYTES
        self._headers = _HeaderRoom(0)
        self._cursor: Ints = np.zeros(kernels.CURSOR_WIDTH, np.int64)

    @property
    def bad_batch(self) -> int:
        return int(self._cursor[kernels.BAD_BATCH])

    def begin(self, rows: int, size: int, place: Bytes | None = None) -> None:
        """Make room for that many rows out of that many bytes of records.

        Values are moved to `place`, if there is one: the very memory in which the batches to be
        appended lie. They only ever move towards its start, over what has been read already.
        """
        if size > MOST_BYTES:
            raise OverflowError(f"{size} bytes of records do not fit one Arrow batch")
        self._cursor[:] = 0
        self._room = _Room(rows)
        if self._there.shape[1] < rows:
            self._there = np.empty((3, rows), np.uint8)
        if self._has_keys and len(self._key_data) < size:
            self._key_data = np.empty(size, np.uint8)
        if place is not None:
            self._value_data = place
        elif self._has_values:
            self._value_data = np.frombuffer(pa.allocate_buffer(size), np.uint8)
        if self._has_headers and self._headers.size < size:
            self._headers = _HeaderRoom(size)

    def append(self, buffer: Bytes, table: Ints, first: int, until: int) -> int:
        """Decode the records of these batches; return `kernels.OK`, or what is wrong with
        `bad_batch`.
        """
        return kernels.decode_batches(
            buffer,
            table,
            first,
            until,
            self._cursor,
            self._room.longs,
            self._room.ints,
            self._there,
            self._has_keys,
            self._key_data,
            self._has_values,
            self._value_data,
            self._has_headers,
            self._headers.ends,
            self._headers.data,
            self._headers.there,
        )

    def finish(self) -> pa.RecordBatch:
        counts = self._cursor.tolist()
        arrays = [make(counts) for make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _longs(self, line: int, kind: pa.DataType, counts: list[int]) -> pa.Array:
        parts = [None, self._room.long_line(line)]
        return pa.Array.from_buffers(kind, counts[kernels.ROW], parts, 0)

    def _time_types(self, counts: list[int]) -> pa.Array:
        parts = [None, self._room.int_line(kernels.TIME_TYPES)]
        return pa.Array.from_buffers(pa.int32(), counts[kernels.ROW], parts, 0)

    def _keys(self, counts: list[int]) -> pa.Array:
        data = self._key_data[: counts[kernels.KEY_BYTES]].copy()
        nulls = counts[kernels.KEY_NULLS]
        return self._bytes(kernels.KEYS, kernels.KEY_ENDS, data, nulls, counts)

    def _values(self, counts: list[int]) -> pa.Array:
        data = self._value_data[: counts[kernels.VALUE_BYTES]]
        nulls = counts[kernels.VALUE_NULLS]
        return self._bytes(kernels.VALUES, kernels.VALUE_ENDS, data, nulls, counts)

    def _bytes(self, which: int, ends: int, data: Bytes, nulls: int, counts: list[int]) -> pa.Array:
        rows = counts[kernels.ROW]
        if nulls == rows:
            return self._constant("null", None, counts)
        mask = _mask(self._there[which, :rows], nulls)
        parts = [mask, self._room.int_line(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), rows, parts, nulls)

    def _constant(self, name: str, value: object, counts: list[int]) -> pa.Array:
        rows = counts[kernels.ROW]
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            scalar = pa.scalar(value, ARROW_TYPES.get(name, pa.binary()))
            known = pa.repeat(scalar, max(rows, 1024))
            self._constants[name] = known
        return known.slice(0, rows)

    def _header_lists(self, counts: list[int]) -> pa.Array:
        rows, count = counts[kernels.ROW], counts[kernels.HEADERS]
        kind = ARROW_TYPES[HEADERS]
        names = self._headers.array(kernels.NAMES, count, counts[kernels.HEADER_KEY_BYTES], 0)
        contents = self._headers.array(
            kernels.CONTENTS,
            count,
            counts[kernels.HEADER_VALUE_BYTES],
            counts[kernels.HEADER_NULLS],
        )
        pairs = pa.StructArray.from_arrays(
            [_as_text(names), contents], fields=list(kind.value_type)
        )
        # A record without headers is null, as in Spark's source.
        nulls = counts[kernels.LIST_NULLS]
        mask = _mask(self._there[kernels.LISTS, :rows], nulls)
        parts = [mask, self._room.int_line(kernels.LIST_ENDS)]
        return pa.Array.from_buffers(kind, rows, parts, nulls, children=[pairs])


def _as_text(names: pa.Array) -> pa.Array:
    """Header names as strings; bytes that are not UTF-8 become U+FFFD, as Java's client does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string()
        )
