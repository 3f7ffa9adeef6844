"""The memory of a merge's tasks, as Arrow counts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moldau.spark.lake.files import written_files
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.target import Changes
from moldau.spark.lake.order import DELETES
from tests.spark.lake.merge.kinds import KINDS

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
ROWS = 10_000
GROUP_BYTES = 200_000
# Buffers know their pool by its address, so it has to live as long as they may.
POOLS: list[pa.MemoryPool] = []


@contextmanager
def counted() -> Iterator[pa.MemoryPool]:
    """Count what Arrow takes from here on, in a pool of its own."""
    usual = pa.default_memory_pool()
    POOLS.append(pa.proxy_memory_pool(usual))
    pa.set_memory_pool(POOLS[-1])
    try:
        yield POOLS[-1]
    finally:
        pa.set_memory_pool(usual)


def rows(first: int) -> pa.RecordBatch:
    keys = np.arange(first, first + ROWS)
    values = pa.array(keys).cast(pa.string())
    return pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array(np.zeros(ROWS, np.int64)), values], schema=SCHEMA
    )


def highest_with(folder: Path, kind: str, groups: int) -> int:
    """Return the most memory for a merge of rows all over a file with so many row groups."""
    table = KINDS[kind](folder, SCHEMA, ("k",), Order(("at",)), row_group_bytes=GROUP_BYTES)
    target = table.target()
    plan = replace(target.plan, file_bytes=1 << 30)
    written = written_files(plan, (rows(each * ROWS) for each in range(groups)))
    assert table.commits(target, Changes(added=written), 0)
    (path,) = table.files()
    assert pq.ParquetFile(path.removeprefix("file://")).num_row_groups == groups
    changes = [{"k": k * ROWS, "at": 1, "v": "new", DELETES: False} for k in range(groups)]
    merge, target = table.merge(changes), table.target()
    with counted() as pool:
        changed = merge.against(target)
    assert table.commits(target, changed, 1)
    assert sum(row["v"] == "new" for row in table.rows()) == groups
    return int(pool.max_memory())


@pytest.mark.parametrize("kind", KINDS)
def test_a_merge_into_a_file_of_many_row_groups_needs_the_memory_of_a_few(
    kind: str, tmp_path: Path
) -> None:
    few, many = (highest_with(tmp_path / str(each), kind, each) for each in (3, 24))
    assert 0 < many < 1.5 * few
