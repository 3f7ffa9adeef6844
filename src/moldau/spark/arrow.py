"""The Arrow columns that kernels fill: room for them, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from moldau.spark import kernels
from moldau.spark.kernels import Bytes, Ints
from moldau.spark.names import HEADERS

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
    """The schema of these columns as Spark expects it: any difference is an error there."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])


# Arrow's binary columns count bytes in 32 bits.
MOST_BYTES = (1 << 31) - 1


def _room(count: int, dtype: type[np.generic]) -> tuple[pa.Buffer, NDArray[Any]]:
    """Memory of Arrow's pool, which is used again sooner than fresh pages are touched."""
    buffer = pa.allocate_buffer(count * np.dtype(dtype).itemsize)
    return buffer, np.frombuffer(buffer, dtype, count)


class _Binary:
    """A column of bytes that is being filled: Arrow's offsets, its data, and what is not null."""

    def __init__(self, rows: int, data: Bytes) -> None:
        self.ends_buffer, self.ends = _room(rows + 1, np.int32)
        self.data = data
        self.there: Bytes = np.empty(rows, np.uint8)
        self.ends[0] = 0

    def mask(self, rows: int, nulls: int) -> pa.Buffer | None:
        if not nulls:
            return None
        return pa.py_buffer(np.packbits(self.there[:rows], bitorder="little"))

    def array(self, kind: pa.DataType, rows: int, size: int, nulls: int) -> pa.Array:
        parts = [self.mask(rows, nulls), self.ends_buffer, pa.py_buffer(self.data[:size])]
        return pa.Array.from_buffers(kind, rows, parts, nulls)

    def copied(self, rows: int, size: int, nulls: int = 0) -> pa.Array:
        """The same in memory of its own, so that this can be filled again."""
        ends = pa.py_buffer(self.ends[: rows + 1].copy())
        data = pa.py_buffer(self.data[:size].copy())
        return pa.Array.from_buffers(pa.binary(), rows, [self.mask(rows, nulls), ends, data], nulls)


_NOTHING = _Binary(0, _NO_BYTES)


class Columns:
    """Columns of one partition: `begin`, then `append` some sections, then `finish`."""

    def __init__(self, names: Sequence[str], topic: str, partition: int) -> None:
        self._schema = arrow_schema(names)
        self._kinds = [(field.name, field.type) for field in self._schema]
        self._has_keys, self._has_values, self._has_headers = (
            name in names for name in ("key", "value", HEADERS)
        )
        self._topic = topic
        self._partition = partition
        self._constants: dict[str, pa.Array] = {}
        self._key_room = _NO_BYTES
        self._header_names = self._header_contents = _NOTHING
        self._header_room = -1
        self._cursor: Ints = np.zeros(kernels.CURSOR_WIDTH, np.int64)

    @property
    def bad_section(self) -> int:
        return int(self._cursor[kernels.BAD_SECTION])

    def begin(self, rows: int, size: int, place: Bytes | None = None) -> None:
        """Make room for that many rows out of that many bytes of records.

        Values are moved to `place`, if there is one: the very memory in which the sections to be
        appended lie. They only ever move towards its start, over what has been read already.
        """
        if size > MOST_BYTES:
            raise OverflowError(f"{size} bytes of records do not fit one Arrow batch")
        self._cursor[:] = 0
        self._offsets_buffer, self._offsets = _room(rows, np.int64)
        self._times_buffer, self._times = _room(rows, np.int64)
        self._types_buffer, self._types = _room(rows, np.int32)
        self._key = self._value = self._lists = _NOTHING
        # Keys and headers could take all of it, but are small as a rule: the room for them is kept,
        # and what was used of it is copied.
        if self._has_keys:
            if len(self._key_room) < size:
                self._key_room = np.empty(size, np.uint8)
            self._key = _Binary(rows, self._key_room)
        if self._has_values:
            self._value = _Binary(rows, _room(size, np.uint8)[1] if place is None else place)
        if self._has_headers:
            self._lists = _Binary(rows, _NO_BYTES)
            if self._header_room < size:
                self._header_names = _Binary(size // 2, np.empty(size, np.uint8))
                self._header_contents = _Binary(size // 2, np.empty(size, np.uint8))
                self._header_room = size

    def append(self, buffer: Bytes, sections: Ints, first: int, until: int) -> int:
        names, contents = self._header_names, self._header_contents
        return kernels.decode_sections(
            buffer,
            sections,
            first,
            until,
            self._cursor,
            self._offsets,
            self._times,
            self._types,
            self._has_keys,
            self._key.ends,
            self._key.data,
            self._key.there,
            self._has_values,
            self._value.ends,
            self._value.data,
            self._value.there,
            self._has_headers,
            self._lists.ends,
            self._lists.there,
            names.ends,
            names.data,
            contents.ends,
            contents.data,
            contents.there,
        )

    def finish(self) -> pa.RecordBatch:
        counts = self._cursor.tolist()
        arrays = [self._array(name, kind, counts) for name, kind in self._kinds]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, kind: pa.DataType, counts: list[int]) -> pa.Array:
        rows = counts[kernels.ROW]
        if name == "key":
            return self._key.copied(rows, counts[kernels.KEY_BYTES], counts[kernels.KEY_NULLS])
        if name == "value":
            size, nulls = counts[kernels.VALUE_BYTES], counts[kernels.VALUE_NULLS]
            return self._value.array(kind, rows, size, nulls)
        if name == "offset":
            return pa.Array.from_buffers(kind, rows, [None, self._offsets_buffer], 0)
        if name == "timestamp":
            return pa.Array.from_buffers(kind, rows, [None, self._times_buffer], 0)
        if name == "timestampType":
            return pa.Array.from_buffers(kind, rows, [None, self._types_buffer], 0)
        if name == HEADERS:
            return self._header_lists(kind, counts)
        return self._constant(name, kind, rows)

    def _constant(self, name: str, kind: pa.DataType, rows: int) -> pa.Array:
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            value = self._topic if name == "topic" else self._partition
            known = pa.repeat(pa.scalar(value, kind), max(rows, 1024))
            self._constants[name] = known
        return known.slice(0, rows)

    def _header_lists(self, kind: pa.DataType, counts: list[int]) -> pa.Array:
        rows, count = counts[kernels.ROW], counts[kernels.HEADERS]
        names = self._header_names.copied(count, counts[kernels.HEADER_KEY_BYTES])
        contents = self._header_contents.copied(
            count, counts[kernels.HEADER_VALUE_BYTES], counts[kernels.HEADER_NULLS]
        )
        pairs = pa.StructArray.from_arrays(
            [_as_text(names), contents], fields=list(kind.value_type)
        )
        # A record without headers is null, as in Spark's source.
        nulls = counts[kernels.LIST_NULLS]
        parts = [self._lists.mask(rows, nulls), self._lists.ends_buffer]
        return pa.Array.from_buffers(kind, rows, parts, nulls, children=[pairs])


def _as_text(names: pa.Array) -> pa.Array:
    """Header names as strings; bytes that are not UTF-8 become U+FFFD, as Java's client does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string()
        )
