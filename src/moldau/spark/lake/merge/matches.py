"""Matches: which rows of a file have keys of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.lake.merge.staged import INDEX, ROW
from moldau.spark.lake.merge.target import OpenFile


def matches(
    file: OpenFile, source: pa.Table, keys: Sequence[str], more: Sequence[str] = ()
) -> Iterator[tuple[int, pa.Table]]:
    """For each row group that has some: rows with ROW, INDEX of the source, and columns of `more`.

    `source` has the keys and INDEX. ROW counts within the row group, and ascends. Row groups whose
    bounds leave no key of the batch are not read.
    """
    if not file.has(keys):
        return
    for group in file.groups:
        wanted = source
        for key in keys:
            wanted = _within(wanted, key, file.bounds(group, key))
        if wanted.num_rows == 0:
            continue
        rows = file.read(group, [*keys, *(name for name in more if name not in keys)])
        found = join(rows, wanted, keys)
        if found.num_rows > 0:
            at = rows.take(found.column(ROW))
            for name in more:
                found = found.append_column(at.schema.field(name), at.column(name))
            yield group, found


def join(rows: pa.Table, source: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return ROW and INDEX of rows with the same keys, by ROW."""
    numbers: np.ndarray[Any, Any] = np.arange(rows.num_rows, dtype=np.int64)
    left = rows.select(list(keys)).append_column(ROW, pa.array(numbers))
    right = source.select([*keys, INDEX])
    found = left.join(right, list(keys), join_type="inner", use_threads=False)
    return found.select([ROW, INDEX]).sort_by(ROW).combine_chunks()


def _within(source: pa.Table, key: str, bounds: tuple[pa.Scalar, pa.Scalar] | None) -> pa.Table:
    if bounds is None:
        return source
    low, high = bounds
    column = source.column(key)
    return source.filter(pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))
