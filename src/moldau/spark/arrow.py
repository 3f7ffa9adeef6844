"""The Arrow columns that kernels fill: room for them, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from moldau.spark import kernels
from moldau.spark.kernels import Bytes, Ints, Offsets
from moldau.spark.names import HEADERS

_NO_BYTES: Bytes = np.empty(0, np.uint8)
_NO_OFFSETS: Offsets = np.empty(0, np.int32)
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

    def __init__(self, rows: int, size: int, place: Bytes | None = None) -> None:
        self.ends_buffer, self.ends = _room(rows + 1, np.int32)
        if place is None:
            self.data_buffer, self.data = _room(size, np.uint8)
        else:
            self.data_buffer, self.data = pa.py_buffer(place), place
        self.there: Bytes = np.empty(rows, np.uint8)
        self.ends[0] = 0

    def mask(self, rows: int) -> pa.Buffer | None:
        there = self.there[:rows]
        return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))

    def array(self, kind: pa.DataType, rows: int) -> pa.Array:
        data = self.data_buffer.slice(0, int(self.ends[rows]))
        return pa.Array.from_buffers(kind, rows, [self.mask(rows), self.ends_buffer, data])

    def copied(self, rows: int, nullable: bool = True) -> pa.Array:
        """The same in memory of its own, so that this can be filled again."""
        ends = pa.py_buffer(self.ends[: rows + 1].copy())
        data = pa.py_buffer(self.data[: int(self.ends[rows])].copy())
        mask = self.mask(rows) if nullable else None
        return pa.Array.from_buffers(pa.binary(), rows, [mask, ends, data])


class Columns:
    """Columns of one partition: `begin`, then `append` some sections, then `finish`."""

    def __init__(self, names: Sequence[str], topic: str, partition: int) -> None:
        self._names = tuple(names)
        self._schema = arrow_schema(names)
        self._topic = topic
        self._partition = partition
        self._constants: dict[str, pa.Array] = {}
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
        self._key = _Binary(rows, size) if "key" in self._names else None
        self._value = _Binary(rows, size, place) if "value" in self._names else None
        self._lists: _Binary | None = None
        if HEADERS in self._names:
            self._lists = _Binary(rows, 0)
            # Room for as many headers as the bytes could hold is seldom needed, so it is kept, and
            # what was used of it is copied.
            if self._header_room < size:
                self._header_names = _Binary(size // 2, size)
                self._header_contents = _Binary(size // 2, size)
                self._header_room = size

    def append(self, buffer: Bytes, sections: Ints, first: int, until: int) -> int:
        key, value, lists = self._key, self._value, self._lists
        names, contents = (self._header_names, self._header_contents) if lists else (None, None)
        return kernels.decode_sections(
            buffer,
            sections,
            first,
            until,
            self._cursor,
            self._offsets,
            self._times,
            self._types,
            *_parts(key),
            *_parts(value),
            lists is not None,
            lists.ends if lists else _NO_OFFSETS,
            lists.there if lists else _NO_BYTES,
            names.ends if names else _NO_OFFSETS,
            names.data if names else _NO_BYTES,
            contents.ends if contents else _NO_OFFSETS,
            contents.data if contents else _NO_BYTES,
            contents.there if contents else _NO_BYTES,
        )

    def finish(self) -> pa.RecordBatch:
        rows = int(self._cursor[kernels.ROW])
        arrays = [self._array(field.name, field.type, rows) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, kind: pa.DataType, rows: int) -> pa.Array:
        if name == "key" and self._key is not None:
            return self._key.array(kind, rows)
        if name == "value" and self._value is not None:
            return self._value.array(kind, rows)
        if name == HEADERS:
            return self._header_lists(kind, rows)
        if name in ("topic", "partition"):
            return self._constant(name, kind, rows)
        buffer = {
            "offset": self._offsets_buffer,
            "timestamp": self._times_buffer,
            "timestampType": self._types_buffer,
        }[name]
        return pa.Array.from_buffers(kind, rows, [None, buffer])

    def _constant(self, name: str, kind: pa.DataType, rows: int) -> pa.Array:
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            value = self._topic if name == "topic" else self._partition
            known = pa.repeat(pa.scalar(value, kind), max(rows, 1024))
            self._constants[name] = known
        return known.slice(0, rows)

    def _header_lists(self, kind: pa.DataType, rows: int) -> pa.Array:
        lists = self._lists
        assert lists is not None
        count = int(self._cursor[kernels.HEADERS])
        names = self._header_names.copied(count, nullable=False)
        contents = self._header_contents.copied(count)
        pairs = pa.StructArray.from_arrays(
            [_as_text(names), contents], fields=list(kind.value_type)
        )
        # A record without headers is null, as in Spark's source.
        parts = [lists.mask(rows), lists.ends_buffer]
        return pa.Array.from_buffers(kind, rows, parts, children=[pairs])


def _parts(column: _Binary | None) -> tuple[bool, Offsets, Bytes, Bytes]:
    if column is None:
        return False, _NO_OFFSETS, _NO_BYTES, _NO_BYTES
    return True, column.ends, column.data, column.there


def _as_text(names: pa.Array) -> pa.Array:
    """Header names as strings; bytes that are not UTF-8 become U+FFFD, as Java's client does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string()
        )
