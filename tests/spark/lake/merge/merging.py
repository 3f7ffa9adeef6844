"""Merges of batches into a table without Spark: tasks run here, one after another."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from moldau.spark.lake.files import FileWritten, WritePlan, write_files
from moldau.spark.lake.location import Store
from moldau.spark.lake.merge.deleted_keys import DeletedKeys
from moldau.spark.lake.merge.merge import Merge
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.staged import Staged
from moldau.spark.lake.merge.target import Changes, Target
from moldau.spark.lake.merge.upserting import Upserting
from moldau.spark.lake.merge.versioning import Reading, Timelines, Versioning
from moldau.spark.lake.order import DELETES


def run_here(task: Callable[[Any], Any], work: Sequence[Any]) -> list[Any]:
    return [task(each) for each in work]


def rearrange_here(timelines: Timelines, work: Sequence[Reading]) -> list[pa.Table]:
    """All entries in one part, in order; of plain values only."""
    batches = [batch for each in work for batch in timelines.read(each)]
    rows = pa.Table.from_batches(batches, timelines.schema).to_pylist()
    rows.sort(key=lambda row: tuple(row[name] for name in timelines.order))
    return [timelines.decide(pa.Table.from_pylist(rows, timelines.schema))]


@dataclass
class Merging(ABC):
    """A table into which batches are merged as the sink of its kind does it."""

    path: Path
    schema: pa.Schema
    keys: tuple[str, ...]
    order: Order = field(default_factory=Order)
    partition_by: tuple[str, ...] = ()
    retention: timedelta = timedelta(days=7)
    row_group_bytes: int = 1
    _batches: Any = field(default_factory=itertools.count)

    @property
    @abstractmethod
    def location(self) -> Store:
        """Where its files are."""

    @property
    @abstractmethod
    def remembered(self) -> Path:
        """The folder of what it remembers of deletes."""

    @abstractmethod
    def target(self) -> Target:
        """The table as it is now."""

    @abstractmethod
    def commits(self, target: Any, changes: Changes, batch_id: int) -> bool:
        """Whether these changes were made, right after that version and no other."""

    @abstractmethod
    def compact(self) -> None: ...

    @abstractmethod
    def sweep(self, older_than: timedelta) -> None:
        """Remove files of that age that nobody needs."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]: ...

    @abstractmethod
    def files(self) -> set[str]: ...

    def stage(self, rows: Sequence[dict[str, Any]], files: int = 2) -> list[FileWritten]:
        """Files of rows that have DELETES besides; one of each key."""
        plan = WritePlan(
            self.location,
            self._staged_schema(rows),
            (),
            "_moldau/part",
            keeps_footer=True,
            row_group_bytes=1,
        )
        written: list[FileWritten] = []
        for part in range(files):
            batches = pa.Table.from_pylist(list(rows[part::files]), plan.schema).to_batches(3)
            (told,) = write_files(plan, iter(batches))
            written += [
                msgspec.json.decode(text, type=FileWritten)
                for text in told.column("written").to_pylist()
            ]
        return [file for file in written if file.rows]

    def _staged_schema(self, rows: Sequence[dict[str, Any]]) -> pa.Schema:
        names = {name for row in rows for name in row}
        given = [each for each in self.schema if each.name in names or not rows]
        return pa.schema([*given, pa.field(DELETES, pa.bool_())])

    def version(self, rows: Sequence[dict[str, Any]], files: int = 2) -> Versioning:
        """The same into a table with history."""
        written = self.stage(rows, files)
        return Versioning(
            run_here,
            rearrange_here,
            2,
            Staged.of(self.location, self._staged_schema(rows), written),
            written,
            self.keys,
            self.order,
            DeletedKeys(self.location, self.keys, timedelta.max),
        )

    def merge(self, rows: Sequence[dict[str, Any]], files: int = 2) -> Upserting:
        written = self.stage(rows, files)
        return Upserting(
            run_here,
            2,
            Staged.of(self.location, self._staged_schema(rows), written),
            written,
            self.keys,
            self.order,
            DeletedKeys(self.location, self.keys, self.retention),
        )

    def commit(self, merge: Merge, between: Callable[[], None] = lambda: None) -> None:
        """Commit as the very next version, and look again if others were faster."""
        batch_id = next(self._batches)
        for _ in range(3):
            target = self.target()
            changes = merge.against(target)
            between()
            between = lambda: None
            if self.commits(target, changes, batch_id):
                return
        raise AssertionError("never committed")
