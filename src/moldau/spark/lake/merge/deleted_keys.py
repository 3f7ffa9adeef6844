"""Deleted keys: how new their deletes were, so that an older row does not bring one back.

A deleted row is gone from the table, and its order with it. So the orders of deletes are kept in
Parquet files in a folder `_moldau`, where readers and other engines' vacuum do not look:

    _moldau/deleted-….parquet    keys, order, and when that was
    _moldau/deleted-N.json       the files that count: a manifest

N is in the table's own log, from the same commit as the batch that deleted. So there is no moment
at which one is there without the other: what a crash leaves before the commit is files that no
version of the table knows of.

Files are never changed. A delete is forgotten after a time that the sink is given.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from moldau.spark.errors import log
from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.files import FileWritten, Folders, WritePlan
from moldau.spark.lake.location import Location, Store
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.staged import Staged
from moldau.spark.lake.order import DELETES

FOLDER = "_moldau"
DELETED_MS = "__moldau_deleted_ms"
# So many small files are made one.
MANY_FILES = 16
SMALL_BYTES = 16 << 20

# Runs a function on each piece of work, in tasks.
Run = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


class MarksFile(msgspec.Struct, frozen=True):
    """A file of deleted keys; the last of them was deleted at `newest_ms`."""

    path: str
    size: int
    newest_ms: int


class Manifest(msgspec.Struct, frozen=True):
    """The files that count, and the columns that they have."""

    keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    files: tuple[MarksFile, ...] = ()


@dataclass(frozen=True, slots=True)
class MarksPlan:
    """The instructions for tasks: `schema` is that of keys, order and time."""

    location: Store
    schema: pa.Schema
    order: Order
    prefix: str
    now_ms: int

    @classmethod
    def of(
        cls,
        table: WritePlan,
        keys: Sequence[str],
        order: Order,
        now_ms: int,
        more: Sequence[str] = (),
    ) -> MarksPlan:
        """Return the plan for files of a table; `more` are columns that they have besides."""
        names = dict.fromkeys([*keys, *order.needed, *more])
        fields = [table.schema.field(name).with_nullable(True) for name in names]
        schema = pa.schema([*fields, pa.field(DELETED_MS, pa.int64())])
        return cls(table.location, schema, order, f"{FOLDER}/deleted-{table.prefix}", now_ms)

    @property
    def write(self) -> WritePlan:
        return WritePlan(self.location, self.schema, (), self.prefix)


class DeletedKeys:
    """The deleted keys of a table, for the driver."""

    def __init__(self, location: Store, keys: Sequence[str], retention: timedelta) -> None:
        self._location = location
        self._keys = tuple(keys)
        self._retention_ms = int(retention / timedelta(milliseconds=1))
        self._known: tuple[int, Manifest] = (-1, Manifest())

    def files(
        self, number: int | None, order: Order, *, is_strict: bool = False
    ) -> tuple[MarksFile, ...]:
        """Return the files of this list, which a version of the table has.

        `is_strict` is for tables that are wrong without them.
        """
        if number is None:
            return ()
        if self._known[0] != number:
            self._known = number, _read(self._location, number)
        manifest = self._known[1]
        if (manifest.keys, manifest.order) != (self._keys, order.needed):
            if is_strict:
                raise LakeError(
                    f"{self._location.uri} has a history by the keys {list(manifest.keys)} in the "
                    f"order of {list(manifest.order)}; write with the same keys and order, or to "
                    "another table"
                )
            log.warning(
                "%s: the keys or the order of the table's writer have changed, so earlier deletes "
                "are forgotten, and older records can bring deleted rows back",
                self._location.uri,
            )
            return ()
        return manifest.files

    def joined(self, run: Run, plan: MarksPlan, files: list[MarksFile]) -> list[MarksFile]:
        """Return the files, with one in the place of many small ones, which a task writes."""
        small = [file for file in files if file.size < SMALL_BYTES]
        if len(small) < MANY_FILES:
            return files
        task = partial(join_marks, plan, before_ms=plan.now_ms - self._retention_ms)
        (joined,) = run(task, [small])
        return [*(file for file in files if file not in small), *joined]

    def record(self, files: Sequence[MarksFile], order: Order, now_ms: int) -> int:
        """Write a new list of the files that count, and return its number: it does so once the
        table says that it has this one."""
        oldest_ms = now_ms - self._retention_ms
        count = tuple(file for file in files if file.newest_ms >= oldest_ms)
        # Another writer may be about to record its own, so numbers do not just count on.
        number = (time.time_ns() // 1000 << 10) + random.getrandbits(10)
        manifest = Manifest(self._keys, order.needed, count)
        with self._location.create(_manifest_name(number)) as file:
            file.write(msgspec.json.encode(manifest))
        return number


def files_that_count(location: Store, number: int) -> set[str]:
    """Return the names of this list of deleted keys and of its files."""
    return {_manifest_name(number), *(file.path for file in _read(location, number).files)}


def sweep(location: Location, number: int | None, older_than_ms: int) -> list[str]:
    """Remove files beside this list that are older than that; return their names."""
    if number is None:
        return []
    needed = files_that_count(location, number)
    unused = [
        name
        for name, modified_ms in location.list(FOLDER)
        if name not in needed and modified_ms < older_than_ms
    ]
    for name in unused:
        location.remove(name)
    return unused


def _read(location: Store, number: int) -> Manifest:
    name = _manifest_name(number)
    try:
        return msgspec.json.decode(location.read(name), type=Manifest)
    except (OSError, msgspec.MsgspecError) as problem:
        raise LakeError(
            f"{location.uri} has a list of deleted keys in {name}, which cannot be read "
            f"({problem}); restore the file, or write {{}} into it to forget what was deleted"
        ) from None


def _manifest_name(number: int) -> str:
    return f"{FOLDER}/deleted-{number}.json"


def write_marks(
    plan: MarksPlan, staged: Staged, number: int, older: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> list[MarksFile]:
    """Write the deletes of a staged file, but for those that are older than what was there."""

    def batches() -> Iterator[pa.RecordBatch]:
        for first, batch in staged.batches(staged.files[number]):
            deletes = batch.column(DELETES).to_numpy(zero_copy_only=False).astype(bool)
            low, high = np.searchsorted(older, [first, first + batch.num_rows])
            deletes[older[low:high] - first] = False
            rows = pa.Table.from_batches([batch.filter(pa.array(deletes))])
            rows = rows.filter(plan.order.known(rows))
            times = pa.repeat(pa.scalar(plan.now_ms, pa.int64()), rows.num_rows)
            rows = rows.append_column(DELETED_MS, times).select(plan.schema.names)
            yield from rows.cast(plan.schema).combine_chunks().to_batches()

    return _written(plan.write, batches(), plan.now_ms)


def join_marks(plan: MarksPlan, files: Sequence[MarksFile], before_ms: int) -> list[MarksFile]:
    """Write the keys of several files into one, without those that were deleted before then."""

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            for rows in read_marks(plan, file):
                kept = rows.filter(pc.greater_equal(rows.column(DELETED_MS), before_ms))
                yield from kept.combine_chunks().to_batches()

    return _written(plan.write, batches(), max(file.newest_ms for file in files))


def read_marks(plan: MarksPlan, file: MarksFile) -> Iterator[pa.Table]:
    """Yield the rows of a file, a row group at a time."""
    with pq.ParquetFile(plan.location.open(file.path)) as parquet:
        for group in range(parquet.metadata.num_row_groups):
            yield parquet.read_row_group(group).select(plan.schema.names).cast(plan.schema)


def _written(plan: WritePlan, batches: Iterator[pa.RecordBatch], newest_ms: int) -> list[MarksFile]:
    folders = Folders(plan)
    try:
        for batch in batches:
            folders.add(batch)
        written: list[FileWritten] = folders.finish()
    finally:
        folders.abandon()
    return [MarksFile(file.path, file.size, newest_ms) for file in written]
