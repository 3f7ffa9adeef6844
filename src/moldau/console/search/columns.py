"""Columns for a filter: what the decoder gives, in the form that expressions expect."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.console.search.filter import Filter
from moldau.console.values.masks import HIDDEN, ORIGINS, Masks, TopicMasks
from moldau.console.values.registered import RegisteredValues, Unreadable
from moldau.console.values.shown import as_json

DECODED = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
# Values that name a schema begin with one of these.
_MAGIC = (0, 1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class FilterColumns:
    """Makes the table `batch` that a filter is run on."""

    def __init__(
        self, wanted: Filter, topic: str, masks: Masks, registered: RegisteredValues | None
    ) -> None:
        self._wanted = wanted
        self._topic = topic
        self._masks = masks
        self._registered = registered
        # Values that could not be read by the schemas that they name.
        self.unreadable = 0

    def table(self, batch: pa.RecordBatch) -> pa.Table:
        rows = batch.num_rows
        arrays = {"row": pa.array(np.arange(rows, dtype=np.int64))}
        wanted = self._wanted.columns
        masks = self._row_masks(batch.column("headers"))
        for name in ("partition", "offset"):
            if name in wanted:
                arrays[name] = batch.column(name)
        if "timestamp" in wanted:
            arrays["timestamp"] = batch.column("timestamp").cast(pa.timestamp("us"))
        if "key" in wanted:
            arrays["key"] = _keys(batch.column("key"), masks)
        if "value" in wanted:
            arrays["value"] = self._values(batch.column("value"), masks)
        if "size" in wanted:
            arrays["size"] = _sizes(batch)
        if "headers" in wanted:
            arrays["headers"] = _headers(batch.column("headers"), masks)
        return pa.table(arrays)

    def _row_masks(self, headers: pa.Array) -> list[TopicMasks] | None:
        """Return what is hidden of each row; None if nothing is of any."""
        of_topic = self._masks.of(self._topic)
        if self._masks and _has_origins(headers):
            return [
                self._masks.of_record(
                    self._topic, ((pair["key"], pair["value"]) for pair in each or ())
                )
                for each in headers.to_pylist()
            ]
        return [of_topic] * len(headers) if of_topic else None

    def _values(self, column: pa.Array, masks: list[TopicMasks] | None) -> pa.Array:
        """Return values as text; what is no text is null, and what is masked is hidden."""
        if masks is None and not (self._registered is not None and _names_schemas(column)):
            return texts(column)
        rows = zip(column.to_pylist(), masks or [TopicMasks()] * len(column), strict=True)
        return pa.array([self._value(data, hidden) for data, hidden in rows], pa.string())

    def _value(self, data: bytes | None, masks: TopicMasks) -> str | None:
        if data is None:
            return None
        if masks.value:
            return HIDDEN
        decoded: Any = msgspec.UNSET
        if self._registered is not None and data[:1] in (b"\0", b"\x01"):
            try:
                read = self._registered.read(data, None)
                decoded = msgspec.UNSET if read is None else read.value
            except Unreadable:
                self.unreadable += 1
                return None
        if decoded is msgspec.UNSET and masks.fields:
            decoded = as_json(data)
            if decoded is msgspec.UNSET:
                return HIDDEN
        if decoded is msgspec.UNSET:
            return _text(data)
        return msgspec.json.encode(masks.hide(decoded)).decode()


def _has_origins(headers: pa.Array) -> bool:
    """Return whether any record has a header that names the origin of a dead letter."""
    names = headers.flatten().field("key")
    return bool(pc.any(pc.is_in(names, value_set=pa.array(sorted(ORIGINS), names.type))).as_py())


def _keys(column: pa.Array, masks: list[TopicMasks] | None) -> pa.Array:
    shown = texts(column)
    if masks is None:
        return shown
    hidden = pa.array([each.key for each in masks], pa.bool_())
    return pc.if_else(hidden, HIDDEN, shown)


def _headers(column: pa.Array, masks: list[TopicMasks] | None) -> pa.Array:
    if masks is None or not any(each.headers for each in masks):
        return column
    shown = [
        None
        if pairs is None
        else [
            {**pair, "value": HIDDEN.encode()} if pair["key"] in each.headers else pair
            for pair in pairs
        ]
        for pairs, each in zip(column.to_pylist(), masks, strict=True)
    ]
    return pa.array(shown, column.type)


def texts(column: pa.Array) -> pa.Array:
    """Return bytes as text; null where they are none."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if each is None else _text(each) for each in column.to_pylist()])


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _names_schemas(column: pa.Array) -> bool:
    """Return whether any value begins like one that names a schema."""
    if not len(column) or column.null_count == len(column):
        return False
    _, ends, data = column.buffers()
    if data is None or not data.size:
        return False
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    begins = offsets[:-1][offsets[1:] > offsets[:-1]]
    first = np.frombuffer(data, np.uint8)[begins]
    return bool(np.isin(first, _MAGIC).any())


def _sizes(batch: pa.RecordBatch) -> pa.Array:
    lengths = [pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in ("key", "value")]
    return pc.cast(pc.add(*lengths), pa.int64())


def to_ms(moment: datetime.datetime) -> int:
    """Return a moment of the decoder's in milliseconds."""
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
