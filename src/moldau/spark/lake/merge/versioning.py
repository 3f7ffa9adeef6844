"""A batch's way into a table with history, as the driver runs it.

Tasks collect the timelines of the batch's keys from files, deletes that are known, and staged
events. Spark brings each key's together, in order. Tasks then say which versions end elsewhere, and
others rewrite the files that hold these and add the new versions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.lake.files import FileWritten, conformed
from moldau.spark.lake.merge.deleted_keys import (
    DeletedKeys,
    MarksFile,
    MarksPlan,
    Run,
    write_marks,
)
from moldau.spark.lake.merge.history import (
    FILE,
    KIND,
    VALID_FROM,
    add_versions,
    deletes_in,
    events_in,
    keys_of,
    outcomes,
    patch_file,
    timeline_schema,
    versions_in,
)
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.staged import Staged
from moldau.spark.lake.merge.target import Changes, TableFile, Target
from moldau.spark.lake.merge.upsert import MergePlan, no_indices
from moldau.spark.lake.merge.upserting import shared_out
from moldau.spark.lake.tasks import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Reading:
    """A task of the first step: files of the table by number, deletes, or a staged file."""

    files: Mapping[int, TableFile] = field(default_factory=dict)
    marks: Sequence[MarksFile] = ()
    staged: int = -1
    as_number: int = -1


@dataclass(frozen=True, slots=True)
class Writing:
    """A task of the last step: a file of the table to patch, or a staged file to add."""

    patch: pa.Table
    file: TableFile | None = None
    staged: int = -1


# Reads timelines in tasks, and returns the outcomes of each part.
Rearrange = Callable[["Timelines", Sequence[Reading]], list[pa.Table]]


@dataclass(frozen=True, slots=True)
class Timelines:
    """The functions of the first two steps, for tasks."""

    plan: MergePlan
    marks: MarksPlan

    @property
    def schema(self) -> pa.Schema:
        return timeline_schema(self.plan.write.schema, self.plan.keys, self.plan.order)

    @property
    def order(self) -> list[str]:
        return list(dict.fromkeys([*self.plan.keys, *self.plan.order.columns, KIND]))

    def read(self, work: Reading) -> Iterator[pa.RecordBatch]:
        if work.staged >= 0:
            yield from events_in(self.plan, work.staged, work.as_number)
            return
        source = keys_of(self.plan)
        for number, file in work.files.items():
            yield from versions_in(self.plan, source, file, number)
        for marks in work.marks:
            yield from deletes_in(self.plan, source, self.marks, marks)

    def decide(self, timeline: pa.Table) -> pa.Table:
        return outcomes(self.plan.keys, self.plan.order, timeline)


@dataclass
class Versioning:
    """The merge of one batch into its table, over all attempts to commit it."""

    run: Run
    rearrange: Rearrange
    slots: int
    staged: Staged
    written: Sequence[FileWritten]
    keys: tuple[str, ...]
    order: Order
    deleted: DeletedKeys
    _last: tuple[object, Changes] | None = None

    def against(self, target: Target) -> Changes:
        """Return what makes this version of the table one with the batch in it."""
        if not self.staged.files:
            return Changes()
        staged = self.staged.in_types_of(target.plan.schema)
        plan = MergePlan(target.plan, staged, self.keys, self.order)
        files = target.files(staged, self.written, self.keys)
        marks = self.deleted.files(target.deleted_keys, self.order, is_strict=True)
        seen = (target.plan, [file.identity for file in files], marks)
        if self._last is None or self._last[0] != seen:
            # Others may have committed, but nothing that could have to do with these keys.
            self._last = seen, self._changes(plan, files, marks)
        return self._last[1]

    def _changes(
        self, plan: MergePlan, files: Sequence[TableFile], marks: Sequence[MarksFile]
    ) -> Changes:
        now_ms = time.time_ns() // 1_000_000
        marks_plan = MarksPlan.of(plan.write, self.keys, self.order, now_ms, (VALID_FROM,))
        numbers = {file.identity: number for number, file in enumerate(files)}
        work = [
            Reading(files={numbers[file.identity]: file for file in group})
            for group in shared_out(files, self.slots)
        ]
        work += [Reading(marks=[file]) for file in marks]
        staged = range(len(self.staged.files))
        work += [Reading(staged=each, as_number=len(files) + each) for each in staged]
        decided = pa.concat_tables(self.rearrange(Timelines(plan, marks_plan), work))
        return self._written(plan, marks_plan, files, marks, decided)

    def _written(
        self,
        plan: MergePlan,
        marks_plan: MarksPlan,
        files: Sequence[TableFile],
        marks: Sequence[MarksFile],
        decided: pa.Table,
    ) -> Changes:
        patches = {
            number: decided.filter(pc.equal(decided.column(FILE), number))
            for number in pc.unique(decided.column(FILE)).to_pylist()
        }
        nothing = decided.slice(0, 0)
        changed = [file for number, file in enumerate(files) if number in patches]
        work = [Writing(patches[n], file) for n, file in enumerate(files) if n in patches]
        work += [
            Writing(patches.get(len(files) + each, nothing), staged=each)
            for each in range(len(self.staged.files))
        ]
        done = self.run(partial(_write, plan, marks_plan), work)
        changes = Changes(changed, [file for written, _ in done for file in written])
        fresh = [file for _, each in done for file in each]
        if fresh:
            count = self.deleted.joined(self.run, marks_plan, [*marks, *fresh])
            changes.deleted_keys = self.deleted.record(count, self.order, marks_plan.now_ms)
        return changes


def _write(
    plan: MergePlan, marks: MarksPlan, work: Writing
) -> tuple[list[FileWritten], list[MarksFile]]:
    if work.file is not None:
        return patch_file(plan, work.file, work.patch), []
    added = add_versions(plan, work.staged, work.patch)
    return added, write_marks(marks, plan.staged, work.staged, no_indices())


def rearrange_in_spark(
    spark: SparkSession, timelines: Timelines, work: Sequence[Reading]
) -> list[pa.Table]:
    """Bring the entries of each key together, in order, and have tasks decide on them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    types = from_arrow_schema(timelines.schema)
    schema = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in types)
    frame = spark.range(0, len(work), 1, len(work))
    entries: Any = map_in_arrow(frame, partial(_read, timelines, work), schema)
    keys = [entries[f"`{name}`"] for name in timelines.plan.keys]
    by = [entries[f"`{name}`"] for name in timelines.order]
    entries = entries.repartition(*keys).sortWithinPartitions(*by)
    rows = map_in_arrow(entries, partial(_decide, timelines), "decided binary").collect()
    return [pa.ipc.open_stream(row["decided"]).read_all() for row in rows]


def _read(
    timelines: Timelines, work: Sequence[Reading], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from timelines.read(work[number])


def _decide(timelines: Timelines, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = timelines.schema
    rows = [conformed(batch, schema) for batch in batches]
    decided = timelines.decide(pa.Table.from_batches(rows, schema))
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, decided.schema) as writer:
        writer.write_table(decided)
    told = pa.array([stream.getvalue().to_pybytes()], pa.binary())
    yield pa.RecordBatch.from_pydict({"decided": told})
