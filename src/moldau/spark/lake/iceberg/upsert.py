"""Upserts into an Iceberg table, on the executors.

The rows of a batch are staged in files that are no part of the table, one row of each key. Tasks
look through the files of the table that may have such keys, and write those anew in which rows are
replaced or deleted; staged rows that met none are added. The driver gets names of files and numbers
of rows. A task holds the keys of the batch and one file of the table in memory, at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from moldau.spark.lake.files import FileWritten, WritePlan, written_files
from moldau.spark.lake.iceberg.data_files import footer_of
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.staged import INDEX, ROW, Staged
from moldau.spark.lake.order import ALONE, DELETES
from moldau.spark.lake.tasks import run_tasks

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

# Columns that tasks stage beside those of the table.
MARKS = (pa.field(DELETES, pa.bool_()), pa.field(ALONE, pa.bool_()))
# So many keys are looked for one by one, in bounds of files and in their partitions.
FEW_KEYS = 200
# A task looks through files of this size in all, unless there are tasks to spare.
TASK_BYTES = 256 << 20

# Type checkers do not see how these are made.
_expressions: Any = expressions

Indices = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """How tasks read files of the table: by the ids of fields, and without deleted rows."""

    metadata: TableMetadata
    properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, table: Table) -> Reading:
        # History is of no use for it, and can be long.
        brief: dict[str, Any] = {
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
        }
        return cls(table.metadata.model_copy(update=brief), dict(table.io.properties))

    def batches(
        self, task: FileScanTask, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, with these columns or all."""
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import ArrowScan

        io = load_file_io(dict(self.properties), self.metadata.location)
        schema = self.metadata.schema()
        if columns is not None:
            schema = schema.select(*columns)
        return ArrowScan(self.metadata, io, schema, AlwaysTrue()).to_record_batches([task])


@dataclass(frozen=True, slots=True)
class UpsertPlan:
    """The instructions for tasks; `write` is of the table, with all its columns."""

    write: WritePlan
    staged: Staged
    keys: tuple[str, ...]
    order: Order
    reading: Reading

    def source(self) -> pa.Table:
        """Return of the staged rows what decides."""
        more = [name for name in self.order.needed if name not in self.keys]
        return self.staged.read([*self.keys, *more, DELETES])


@dataclass(frozen=True, slots=True)
class FileMerged:
    """The outcome of a file: staged rows that met one of it, and what replaces it if it changed."""

    path: str
    met: Indices
    is_changed: bool = False
    written: tuple[FileWritten, ...] = ()


@dataclass(frozen=True, slots=True)
class Changes:
    removed: list[DataFile] = field(default_factory=list)
    added: list[FileWritten] = field(default_factory=list)


def upsert(
    spark: SparkSession, table: Table, plan: UpsertPlan, written: Sequence[FileWritten]
) -> Changes:
    """Return what makes the table one with the staged rows in it; `written` are their files."""
    if not plan.staged.files:
        return Changes()
    tasks = list(table.scan(row_filter=_key_filter(plan, written)).plan_files())
    groups = _shared_out(tasks, spark.sparkContext.defaultParallelism)
    done = run_tasks(spark, partial(_merge, plan), groups)
    merged = [file for each in done for file in each]
    met = np.unique(np.concatenate([_none(), *(file.met for file in merged)]))
    numbers = range(len(plan.staged.files))
    added = run_tasks(spark, partial(_add, plan, met), numbers)
    changed = {file.path: file for file in merged if file.is_changed}
    return Changes(
        [task.file for task in tasks if task.file.file_path in changed],
        [file for each in (*(m.written for m in merged), *added) for file in each],
    )


def _merge(plan: UpsertPlan, group: Sequence[FileScanTask]) -> list[FileMerged]:
    source = plan.source()
    return [_merged(plan, source, task) for task in group]


def _merged(plan: UpsertPlan, source: pa.Table, task: FileScanTask) -> FileMerged:
    """Write the file anew where the batch changes it."""
    path = task.file.file_path
    needed = [*plan.keys, *(name for name in plan.order.needed if name not in plan.keys)]
    rows = _table(plan, needed, plan.reading.batches(task, needed))
    found = _join(rows, source, plan.keys)
    if found.num_rows == 0:
        return FileMerged(path, _none())
    indices = found.column(INDEX).to_numpy()
    ours, theirs = source.take(found.column(INDEX)), rows.take(found.column(ROW))
    loses = plan.order.older(ours, theirs).to_numpy(zero_copy_only=False).astype(bool)
    if loses.all():
        return FileMerged(path, indices)
    deletes = source.column(DELETES).to_numpy().astype(bool)
    hits = found.column(ROW).to_numpy()[~loses], indices[~loses]
    written = written_files(plan.write, _rewritten(plan, task, *hits, deletes))
    return FileMerged(path, indices, True, tuple(written))


def _rewritten(
    plan: UpsertPlan, task: FileScanTask, rows: Indices, indices: Indices, deletes: Indices
) -> Iterator[pa.RecordBatch]:
    """The rows of the file, those at `rows` replaced by the staged ones or gone."""
    first = 0
    for batch in plan.reading.batches(task):
        low, high = np.searchsorted(rows, [first, first + batch.num_rows])
        at, new = rows[low:high] - first, indices[low:high]
        first += batch.num_rows
        stays = np.ones(batch.num_rows, dtype=bool)
        stays[at] = False
        yield batch.filter(pa.array(stays))
        replaces = ~deletes[new]
        if replaces.any():
            yield _replaced(plan, batch.take(pa.array(at[replaces])), new[replaces])


def _replaced(plan: UpsertPlan, old: pa.RecordBatch, indices: Indices) -> pa.RecordBatch:
    """Return the staged rows; columns that the batch lacks stay as they were."""
    ascending = np.unique(indices)
    new = plan.staged.take(ascending).take(pa.array(np.searchsorted(ascending, indices)))
    arrays = [
        new.column(name).combine_chunks().cast(old.column(name).type)
        if name in new.schema.names
        else old.column(name)
        for name in old.schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=old.schema)


def _add(plan: UpsertPlan, met: Indices, number: int) -> list[FileWritten]:
    """Write the rows of a staged file that met none of the table and are no deletes."""

    def batches() -> Iterator[pa.RecordBatch]:
        for first, batch in plan.staged.batches(plan.staged.files[number]):
            low, high = np.searchsorted(met, [first, first + batch.num_rows])
            is_new = ~batch.column(DELETES).to_numpy(zero_copy_only=False).astype(bool)
            is_new[met[low:high] - first] = False
            rows = batch.filter(pa.array(is_new))
            arrays = [
                rows.column(each.name)
                if each.name in rows.schema.names
                else pa.nulls(rows.num_rows, each.type)
                for each in plan.write.schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=plan.write.schema)

    return written_files(plan.write, batches())


def _table(plan: UpsertPlan, names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> pa.Table:
    schema = pa.schema([plan.write.schema.field(name) for name in names])
    parts = [pa.Table.from_batches([batch]).select(list(names)).cast(schema) for batch in batches]
    return pa.concat_tables([schema.empty_table(), *parts]).combine_chunks()


def _join(rows: pa.Table, source: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return ROW and INDEX of rows with the same keys, by ROW."""
    numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    left = rows.select(list(keys)).append_column(ROW, numbers)
    found = left.join(source.select([*keys, INDEX]), list(keys), join_type="inner")
    return found.select([ROW, INDEX]).sort_by(ROW).combine_chunks()


def _key_filter(plan: UpsertPlan, written: Sequence[FileWritten]) -> BooleanExpression:
    """Return a condition that holds for every row with a key of the batch: files are chosen by it.

    Only for keys whose bounds mean the same to everybody."""
    condition: BooleanExpression = AlwaysTrue()
    is_few = sum(file.rows for file in written) <= FEW_KEYS
    for key in plan.keys:
        kind = plan.staged.schema.field(key).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
            continue
        if is_few:
            values = set(plan.staged.read([key]).column(key).to_pylist())
            condition = And(condition, _expressions.In(key, values))
            continue
        bounds = _bounds(key, written)
        if bounds is not None:
            condition = And(condition, _between(key, *bounds))
    return condition


def _between(key: str, low: Any, high: Any) -> BooleanExpression:
    at_least = _expressions.GreaterThanOrEqual(key, low)
    return And(at_least, _expressions.LessThanOrEqual(key, high))


def _bounds(key: str, written: Sequence[FileWritten]) -> tuple[Any, Any] | None:
    lows, highs = [], []
    for file in written:
        footer = footer_of(file)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if column.path_in_schema == key:
                    found = column.statistics
                    if found is None or not found.has_min_max:
                        return None
                    lows.append(found.min)
                    highs.append(found.max)
    return (min(lows), max(highs)) if lows else None


def _shared_out(tasks: Sequence[FileScanTask], slots: int) -> list[list[FileScanTask]]:
    """Divide files among tasks, evenly by size."""
    total = sum(task.file.file_size_in_bytes for task in tasks)
    count = min(len(tasks), max(2 * slots, -(-total // TASK_BYTES)))
    groups: list[list[FileScanTask]] = [[] for _ in range(count)]
    largest_first = sorted(tasks, key=lambda each: -each.file.file_size_in_bytes)
    for number, task in enumerate(largest_first):
        groups[number % count].append(task)
    return groups


def _none() -> Indices:
    return np.empty(0, dtype=np.int64)
