"""Row groups of Parquet files: their bounds, and how much of one is read at once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

# Read at once: enough rows for columnar work to pay off, but not many of them if they are large.
MOST_ROWS = 32768
MOST_BYTES = 8 << 20


def rows_at_once(group: Any) -> int:
    """Return how many rows of a group, given by its metadata, to decode at once."""
    row_bytes = max(group.total_byte_size // max(group.num_rows, 1), 1)
    return int(min(max(MOST_BYTES // row_bytes, 1), MOST_ROWS))


def bounds_in(group: Any, path: str, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the least and greatest value of a column, in the table's type, where they are known.

    `group` is the metadata of a row group, and `path` what the file calls the column."""
    if pa.types.is_floating(kind):
        # Bounds leave out what is no number.
        return None
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == path:
            found = column.statistics
            if found is None or not found.has_min_max:
                return None
            try:
                return pa.scalar(found.min, kind), pa.scalar(found.max, kind)
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                return None
    return None
