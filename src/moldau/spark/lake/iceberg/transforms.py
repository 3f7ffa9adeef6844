"""Partition transforms: `days(time)` and its like, as values of Arrow columns.

Values are as Iceberg keeps them: days, months, hours and years since 1970, buckets by the 32-bit
Murmur3 hash, dates and times as numbers. Tasks compute them, so this needs Arrow and numpy alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from moldau.spark.lake.errors import LakeError, SchemaConflict
from moldau.spark.lake.iceberg.murmur import hash_bytes, hash_longs

_CALL = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^,()]+?)\s*\)")
_TIMES = ("year", "month", "day", "hour")
# As Spark's SQL for Iceberg tables calls them, and as Iceberg itself does.
_NAMES = {each: each for each in (*_TIMES, "bucket", "truncate")} | {f"{t}s": t for t in _TIMES}
_SUFFIXES = {"bucket": "bucket", "truncate": "trunc"}
_EPOCH = date(1970, 1, 1)
_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Transform:
    """How partition values are made of one column; `width` is the count of buckets, or a length.

    A table's own transform has the name that its maker chose for the partition field.
    """

    kind: str
    column: str
    width: int = 0
    given_name: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> Transform:
        """Read `time`, `days(time)`, `bucket(16, id)` or `truncate(4, name)`; LakeError."""
        found = _CALL.fullmatch(text.strip())
        if found is None:
            if not text.strip() or "(" in text:
                raise LakeError(_unclear(text))
            return cls("identity", text.strip())
        kind, width, column = _NAMES.get(found[1].lower()), int(found[2] or 0), found[3]
        if kind is None or (kind in _TIMES) == bool(found[2]) or (found[2] and not width):
            raise LakeError(_unclear(text))
        return cls(kind, column, width)

    def __str__(self) -> str:
        if self.kind == "identity":
            return self.column
        name = f"{self.kind}s" if self.kind in _TIMES else self.kind
        return f"{name}({f'{self.width}, ' if self.width else ''}{self.column})"

    @property
    def name(self) -> str:
        """The name of the partition field, as other engines choose it."""
        if self.given_name or self.kind == "identity":
            return self.given_name or self.column
        return f"{self.column}_{_SUFFIXES.get(self.kind, self.kind)}"

    def require(self, table: str, schema: pa.Schema) -> None:
        """SchemaConflict if the column cannot be partitioned by like this."""
        if self.column not in schema.names:
            raise SchemaConflict(
                table, self.column, "is in partition_by, but does not exist", "select it"
            )
        kind = schema.field(self.column).type
        if not _suits(self.kind, kind):
            raise SchemaConflict(
                table, self.column, f"is {kind}, which {self} cannot take", "choose another column"
            )
        if self.kind != "identity" and self.name in schema.names:
            raise SchemaConflict(
                table, self.name, f"has the name of the partitions by {self}", "rename it"
            )

    def values(self, column: pa.Array) -> pa.Array:
        """Return the partition value of each row; null for null."""
        if self.kind == "identity":
            return _plain(column)
        if self.kind == "bucket":
            return _buckets(column, self.width)
        if self.kind == "truncate":
            return _truncated(column, self.width)
        if self.kind in ("year", "month"):
            moments = column if pa.types.is_date(column.type) else column.cast(_local(column.type))
            years = pc.subtract(pc.year(moments), 1970)
            if self.kind == "month":
                years = pc.add(pc.multiply(years, 12), pc.subtract(pc.month(moments), 1))
            return years.cast(pa.int32())
        if pa.types.is_date(column.type):
            return column.cast(pa.int32())
        unit = _DAY_US if self.kind == "day" else _HOUR_US
        return _floor_div(column.cast(pa.int64()), unit).cast(pa.int32())

    def text(self, value: Any) -> str | None:
        """Return a value as a folder's name shows it to people."""
        if value is None or self.kind not in _TIMES:
            return None if value is None else str(value)
        if self.kind == "year":
            return str(1970 + value)
        if self.kind == "month":
            return f"{1970 + value // 12}-{value % 12 + 1:02}"
        days, hour = (value, None) if self.kind == "day" else divmod(value, 24)
        try:
            text = (_EPOCH + timedelta(days=days)).isoformat()
        except OverflowError:
            # Spark's calendar is longer than Python's.
            text = str(days)
        return text if hour is None else f"{text}-{hour:02}"


def parse_transforms(texts: Sequence[str]) -> tuple[Transform, ...]:
    """Read all of `partition_by`; LakeError for one that is unclear or there twice."""
    found = tuple(map(Transform.parse, texts))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise LakeError(f"partition_by has two transforms that are both named {name!r}")
    return found


def _unclear(text: str) -> str:
    return (
        f"partition_by: {text!r} is neither a column nor one of years(c), months(c), days(c), "
        "hours(c), bucket(N, c) and truncate(N, c)"
    )


def _suits(kind: str, column: pa.DataType) -> bool:
    types = pa.types
    if kind == "hour":
        return bool(types.is_timestamp(column))
    if kind in _TIMES:
        return bool(types.is_timestamp(column) or types.is_date(column))
    if kind == "truncate":
        return bool(types.is_integer(column) or types.is_string(column))
    is_whole = types.is_integer(column) or types.is_string(column) or types.is_date(column)
    if kind == "bucket":
        return bool(is_whole or types.is_timestamp(column) or types.is_binary(column))
    return bool(
        is_whole
        or types.is_timestamp(column)
        or types.is_boolean(column)
        or types.is_decimal(column)
    )


def _local(kind: pa.DataType) -> pa.DataType:
    """Times in UTC without saying so: years and months of others would be those of their zone."""
    return pa.timestamp(kind.unit)


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.string()) if pa.types.is_decimal(column.type) else column


def _floor_div(numbers: pa.Array, unit: int) -> pa.Array:
    """Divide towards the past: Arrow's own division goes towards zero."""
    values = np.floor_divide(_ints(numbers), unit)
    return pa.array(values, mask=_nulls(numbers))


def _truncated(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    values = _ints(column)
    return pa.array(values - np.mod(values, width), mask=_nulls(column)).cast(column.type)


def _buckets(column: pa.Array, count: int) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        hashes = hash_bytes(column)
    else:
        whole = column.cast(pa.int32()) if pa.types.is_date(column.type) else column
        hashes = hash_longs(_ints(whole))
    found = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)
    return pa.array(found.astype(np.int32), mask=_nulls(column))


def _ints(column: pa.Array) -> NDArray[np.int64]:
    filled: NDArray[np.int64] = (
        column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return filled


def _nulls(column: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return found
