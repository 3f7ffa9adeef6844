"""Statistics of a file in the table's log: rows, nulls, smallest and largest values.

Readers pass over files by these, so a bound may be wider than the values, never narrower. It is
left out where that cannot be said for sure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# As many as other writers of Delta tables index by default.
MOST_COLUMNS = 32
MOST_CHARACTERS = 32
LAST_CHARACTER = "\U0010ffff"


def file_stats(metadata: Any, schema: pa.Schema, skip_bounds: Collection[str]) -> dict[str, Any]:
    """Return the stats of a Parquet file from its footer; no bounds of the columns in
    `skip_bounds`."""
    kinds = dict(_leaves(schema))
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for index, path in _indexed(metadata, kinds):
        found = [
            metadata.row_group(group).column(index).statistics
            for group in range(metadata.num_row_groups)
        ]
        if not found or any(each is None or not each.has_null_count for each in found):
            continue
        _put(nulls, path, sum(each.null_count for each in found))
        # A row group without bounds holds nothing but nulls, or something that has no order.
        with_values = [each for each in found if each.num_values > 0]
        if path in skip_bounds or not all(each.has_min_max for each in with_values):
            continue
        try:
            bounds = [(each.min, each.max) for each in with_values]
        except (ValueError, OverflowError):
            # Spark's calendar is longer than Python's.
            continue
        if bounds:
            _put(lows, path, _bound(kinds[path], min, [low for low, _ in bounds]))
            _put(highs, path, _bound(kinds[path], max, [high for _, high in bounds]))
    return {
        "numRecords": metadata.num_rows,
        "minValues": lows,
        "maxValues": highs,
        "nullCount": nulls,
    }


def null_counts(batch: pa.RecordBatch, columns: Collection[str]) -> dict[str, int]:
    return {name: batch.column(name).null_count for name in columns if name in batch.schema.names}


def unordered_columns(batch: pa.RecordBatch) -> set[str]:
    """Columns with a NaN: Parquet leaves it out of its bounds, and some engines order it last."""
    found = set()
    for path, kind in _leaves(batch.schema):
        if pa.types.is_floating(kind):
            array: Any = batch.column(path.split(".")[0])
            for part in path.split(".")[1:]:
                array = pc.struct_field(array, part)
            if pc.any(pc.is_nan(array)).as_py():
                found.add(path)
    return found


def _leaves(schema: Any, prefix: str = "") -> list[tuple[str, pa.DataType]]:
    """Return every value that is not in a list or map, by its path; names with a dot
    are left out."""
    leaves: list[tuple[str, pa.DataType]] = []
    for field in schema:
        if "." in field.name:
            continue
        if pa.types.is_struct(field.type):
            leaves += _leaves(field.type, f"{prefix}{field.name}.")
        elif not pa.types.is_nested(field.type):
            leaves.append((prefix + field.name, field.type))
    return leaves


def _indexed(metadata: Any, kinds: dict[str, pa.DataType]) -> list[tuple[int, str]]:
    if metadata.num_row_groups == 0:
        return []
    group = metadata.row_group(0)
    paths = [(index, group.column(index).path_in_schema) for index in range(group.num_columns)]
    return [(index, path) for index, path in paths if path in kinds][:MOST_COLUMNS]


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    if value is None:
        return
    *parents, leaf = path.split(".")
    for name in parents:
        tree = tree.setdefault(name, {})
    tree[leaf] = value


def _bound(kind: pa.DataType, choose: Callable[[Any], Any], values: list[Any]) -> Any:
    if pa.types.is_binary(kind) or pa.types.is_boolean(kind):
        return None
    value = choose(values)
    is_upper = choose is max
    if isinstance(value, str):
        return _short(value, is_upper)
    if isinstance(value, datetime):
        return _milliseconds(value, is_upper, pa.types.is_timestamp(kind) and kind.tz is not None)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        # JSON's numbers are read as doubles by some, which may round across a bound.
        return int(value) if value == int(value) and abs(value) < 1 << 53 else None
    if isinstance(value, float):
        return value if abs(value) != float("inf") else None
    return value if isinstance(value, int) else None


def _short(value: str, is_upper: bool) -> str | None:
    if len(value) <= MOST_CHARACTERS:
        return value
    if not is_upper:
        return value[:MOST_CHARACTERS]
    if value[MOST_CHARACTERS] == LAST_CHARACTER:
        return None
    return value[:MOST_CHARACTERS] + LAST_CHARACTER


def _milliseconds(value: datetime, is_upper: bool, is_zoned: bool) -> str | None:
    """Readers count in milliseconds, so bounds are rounded outwards to them."""
    rest = value.microsecond % 1000
    try:
        value -= timedelta(microseconds=rest)
        if is_upper and rest:
            value += timedelta(milliseconds=1)
    except OverflowError:
        return None
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return value.isoformat(timespec="milliseconds") + ("Z" if is_zoned else "")
