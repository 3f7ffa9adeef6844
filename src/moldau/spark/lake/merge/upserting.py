"""An upsert as the driver runs it: which files tasks look through, and what is committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from moldau.spark.lake.files import FileWritten, WritePlan
from moldau.spark.lake.merge.deleted_keys import (
    DeletedKeys,
    MarksFile,
    MarksPlan,
    Run,
    read_marks,
    write_marks,
)
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.staged import Staged
from moldau.spark.lake.merge.target import Changes, TableFile, Target
from moldau.spark.lake.merge.upsert import (
    FileMerged,
    Indices,
    MergePlan,
    add_rows,
    merge_file,
    no_indices,
    outdated,
)

# A task looks through files of this size in all, unless there are tasks to spare.
TASK_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _Work:
    """A task of the first step: some files of the table, or of deleted keys."""

    files: Sequence[TableFile] = ()
    marks: Sequence[MarksFile] = ()


@dataclass(frozen=True, slots=True)
class _Added:
    """A task of the second step: the rows that a staged file adds, and its deletes."""

    number: int
    settled: Indices
    older: Indices


Found = tuple[list[FileMerged], dict[str, Indices]]


@dataclass
class Upserting:
    """The merge of one batch into its table, over all attempts to commit it.

    What a file of the table became is kept from one attempt to the next, for files never change:
    when others commit in between, only files that they added are looked through.
    """

    run: Run
    slots: int
    staged: Staged
    written: Sequence[FileWritten]
    keys: tuple[str, ...]
    order: Order
    deleted: DeletedKeys
    # Says which staged rows a condition of the merge holds back, of those that meet some in files.
    held_back: Callable[[MergePlan, Sequence[Sequence[TableFile]]], Indices] | None = None
    _plan: WritePlan | None = None
    _merged: dict[str, FileMerged] = field(default_factory=dict)
    _outdated: dict[str, Indices] = field(default_factory=dict)
    _added: tuple[Indices, list[FileWritten], list[MarksFile]] | None = None

    def against(self, target: Target) -> Changes:
        """Return what makes this version of the table one with the batch in it."""
        if not self.staged.files:
            return Changes()
        now_ms = time.time_ns() // 1_000_000
        if self._plan != target.plan:
            # The table has other columns or partitions than files that were written before.
            self._plan, self._merged, self._added = target.plan, {}, None
        staged = self.staged.in_types_of(target.plan.schema)
        plan = MergePlan(target.plan, staged, self.keys, self.order)
        marks_plan = MarksPlan.of(plan.write, self.keys, self.order, now_ms)
        listed = target.deleted_keys
        marks = self.deleted.files(listed, self.order) if self.order.needed else ()
        files = target.files(staged, self.written, self.keys)
        self._look_through(plan, marks_plan, files, marks)
        merged = [self._merged[file.identity] for file in files]
        older = _union(*(each.older for each in merged), *(self._outdated[m.path] for m in marks))
        settled = _union(older, *(each.met for each in merged))
        if self._added is None or not np.array_equal(self._added[0], settled):
            pieces = [_Added(each, settled, older) for each in range(len(self.staged.files))]
            done = self.run(partial(_add, plan, marks_plan), pieces)
            new = [file for each, _ in done for file in each]
            self._added = settled, new, [file for _, each in done for file in each]
        _, added, fresh = self._added
        changes = Changes()
        for file, outcome in zip(files, merged, strict=True):
            if outcome.is_changed:
                changes.removed.append(file)
                changes.added += outcome.written
        changes.added += added
        if fresh:
            count = self.deleted.joined(self.run, marks_plan, [*marks, *fresh])
            changes.deleted_keys = self.deleted.record(count, self.order, now_ms)
        return changes

    def _look_through(
        self,
        plan: MergePlan,
        marks_plan: MarksPlan,
        files: Sequence[TableFile],
        marks: Sequence[MarksFile],
    ) -> None:
        unseen = [file for file in files if file.identity not in self._merged]
        groups = shared_out(unseen, self.slots)
        if self.held_back is not None and unseen:
            plan = replace(plan, held=self.held_back(plan, groups))
        work = [_Work(files=group) for group in groups]
        work += [_Work(marks=[file]) for file in marks if file.path not in self._outdated]
        for merged, old in self.run(partial(_merge, plan, marks_plan), work):
            self._merged.update({each.identity: each for each in merged})
            self._outdated.update(old)


def _merge(plan: MergePlan, marks: MarksPlan, work: _Work) -> Found:
    source = plan.source()
    merged = [merge_file(plan, source, file) for file in work.files]
    old = {
        file.path: _union(
            *(outdated(source, rows, plan.keys, plan.order) for rows in read_marks(marks, file))
        )
        for file in work.marks
    }
    return merged, old


def _add(
    plan: MergePlan, marks: MarksPlan, work: _Added
) -> tuple[list[FileWritten], list[MarksFile]]:
    added = add_rows(plan, work.number, work.settled)
    if not plan.order.needed:
        # Whatever comes later is newer then, so there is nothing to remember.
        return added, []
    return added, write_marks(marks, plan.staged, work.number, work.older)


def shared_out(files: Sequence[TableFile], slots: int) -> list[list[TableFile]]:
    """Divide files among tasks, evenly by size."""
    total = sum(file.size for file in files)
    count = min(len(files), max(2 * slots, -(-total // TASK_BYTES)))
    groups: list[list[TableFile]] = [[] for _ in range(count)]
    for number, file in enumerate(sorted(files, key=lambda each: -each.size)):
        groups[number % count].append(file)
    return groups


def _union(*parts: Indices) -> Indices:
    return np.unique(np.concatenate([no_indices(), *parts]))
