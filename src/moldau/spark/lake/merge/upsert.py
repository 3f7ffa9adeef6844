"""Upserts: a file of the table with the rows of a batch in it, as tasks make it.

Every key is in the table once, so a staged row meets one row of one file at most. It replaces that
row in its file, deletes it, or leaves it if the table's is newer; staged rows that met none are
added afterwards. A file in which nothing changes stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.lake.files import FileWritten, Folders, WritePlan
from moldau.spark.lake.merge.matches import join, matches
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.staged import INDEX, ROW, Staged
from moldau.spark.lake.merge.target import OpenFile, TableFile
from moldau.spark.lake.order import DELETES

Indices = np.ndarray[Any, Any]


def no_indices() -> Indices:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The instructions for tasks. `write` is of the table, with all its columns."""

    write: WritePlan
    staged: Staged
    keys: tuple[str, ...]
    order: Order
    # Staged rows that leave the rows of the table as they are.
    held: Indices = field(default_factory=no_indices)

    def source(self) -> pa.Table:
        """Return of the staged rows what decides."""
        more = [name for name in self.order.needed if name not in self.keys]
        return self.staged.read([*self.keys, *more, DELETES])


@dataclass(frozen=True, slots=True)
class FileMerged:
    """The outcome of a file: staged rows that met a row of it, those that were older, and what it
    was replaced by. `is_changed` without any file means that all rows are gone."""

    identity: str
    met: Indices = field(default_factory=no_indices)
    older: Indices = field(default_factory=no_indices)
    is_changed: bool = False
    written: tuple[FileWritten, ...] = ()


def merge_file(plan: MergePlan, source: pa.Table, file: TableFile) -> FileMerged:
    """Write the file anew where the batch changes it."""
    met, older = [no_indices()], [no_indices()]
    changes: dict[int, tuple[Indices, Indices]] = {}
    with file.open(plan.write) as opened:
        for group, found in matches(opened, source, plan.keys, plan.order.needed):
            indices = found.column(INDEX).to_numpy()
            loses = _loses(plan, source.take(found.column(INDEX)), found)
            met.append(indices)
            older.append(indices[loses])
            if not loses.all():
                changes[group] = (found.column(ROW).to_numpy()[~loses], indices[~loses])
        written: tuple[FileWritten, ...] = ()
        if changes:
            deletes = source.column(DELETES).to_numpy()
            written = _rewritten(plan, opened, changes, deletes)
    return FileMerged(
        file.identity, np.concatenate(met), np.concatenate(older), bool(changes), written
    )


def _loses(plan: MergePlan, source: pa.Table, target: pa.Table) -> np.ndarray[Any, Any]:
    older = plan.order.older(source, target).to_numpy(zero_copy_only=False)
    loses: np.ndarray[Any, Any] = older | np.isin(source.column(INDEX).to_numpy(), plan.held)
    return loses


def _rewritten(
    plan: MergePlan,
    opened: OpenFile,
    changes: dict[int, tuple[Indices, Indices]],
    deletes: np.ndarray[Any, Any],
) -> tuple[FileWritten, ...]:
    everything = np.concatenate([indices for _, indices in changes.values()])
    needed = np.sort(everything[~deletes[everything].astype(bool)])
    rows = plan.staged.take(needed)
    folders = Folders(plan.write)
    try:
        for group in opened.groups:
            numbers, indices = changes.get(group, (no_indices(), no_indices()))
            first = 0
            for batch in opened.batches(group):
                low, high = np.searchsorted(numbers, [first, first + batch.num_rows])
                part = numbers[low:high] - first
                folders.add(_without(batch, part))
                replaces = ~deletes[indices[low:high]].astype(bool)
                if replaces.any():
                    at = np.searchsorted(needed, indices[low:high][replaces])
                    folders.add(_replaced(batch.take(part[replaces]), rows.take(at)))
                first += batch.num_rows
        return tuple(folders.finish())
    finally:
        folders.abandon()


def _without(batch: pa.RecordBatch, numbers: Indices) -> pa.RecordBatch:
    if len(numbers) == 0:
        return batch
    stays = np.ones(batch.num_rows, dtype=bool)
    stays[numbers] = False
    return batch.filter(pa.array(stays))


def _replaced(old: pa.RecordBatch, new: pa.Table) -> pa.RecordBatch:
    """Return the new rows; columns that the batch lacks stay as they were."""
    arrays = [
        new.column(each.name).combine_chunks()
        if each.name in new.schema.names
        else old.column(each.name)
        for each in old.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=old.schema)


def add_rows(plan: MergePlan, number: int, settled: Indices) -> list[FileWritten]:
    """Write the rows of a staged file that are new in the table: not settled, and no deletes."""
    folders = Folders(plan.write)
    try:
        for first, batch in plan.staged.batches(plan.staged.files[number]):
            low, high = np.searchsorted(settled, [first, first + batch.num_rows])
            is_new = ~batch.column(DELETES).to_numpy(zero_copy_only=False).astype(bool)
            is_new[settled[low:high] - first] = False
            rows = batch.filter(pa.array(is_new))
            arrays = [
                rows.column(each.name)
                if each.name in rows.schema.names
                else pa.nulls(rows.num_rows, each.type)
                for each in plan.write.schema
            ]
            folders.add(pa.RecordBatch.from_arrays(arrays, schema=plan.write.schema))
        return folders.finish()
    finally:
        folders.abandon()


def pairs(
    plan: MergePlan, source: pa.Table, file: TableFile, columns: tuple[pa.Schema, pa.Schema]
) -> Iterator[pa.RecordBatch]:
    """INDEX, and structs `source` and `target` of these columns, of rows with the same keys."""
    ours, theirs = columns
    with file.open(plan.write) as opened:
        for _, found in matches(opened, source, plan.keys, theirs.names):
            found = found.sort_by(INDEX)
            indices = found.column(INDEX).to_numpy()
            rows = plan.staged.take(indices)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(indices, pa.int64()),
                    _struct(rows.select(ours.names), ours),
                    _struct(found.select(theirs.names), theirs),
                ],
                names=[INDEX, "source", "target"],
            )


def _struct(rows: pa.Table, schema: pa.Schema) -> pa.Array:
    arrays = [rows.column(name).combine_chunks() for name in schema.names]
    return pa.StructArray.from_arrays(arrays, fields=list(schema))


def outdated(source: pa.Table, marks: pa.Table, keys: Sequence[str], order: Order) -> Indices:
    """Return the staged rows that are older than a mark of their key."""
    found = join(marks, source, keys)
    rows = source.take(found.column(INDEX))
    older = order.older(rows, marks.take(found.column(ROW)))
    return np.unique(pc.filter(rows.column(INDEX), older).to_numpy())
