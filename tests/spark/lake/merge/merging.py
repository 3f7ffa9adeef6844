"""Merges of batches into a table without Spark: tasks run here, one after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from moldau.spark.lake.evolution import schema_of
from moldau.spark.lake.files import FileWritten, WritePlan, write_files
from moldau.spark.lake.journal import Entry
from moldau.spark.lake.location import Location
from moldau.spark.lake.merge.deleted_keys import DeletedKeys
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.staged import Staged
from moldau.spark.lake.merge.upserting import Upserting
from moldau.spark.lake.merge.versioning import Reading, Timelines, Versioning
from moldau.spark.lake.order import DELETES
from tests.spark.lake.tables import rows_of


def run_here(task: Callable[[Any], Any], work: Sequence[Any]) -> list[Any]:
    return [task(each) for each in work]


def rearrange_here(timelines: Timelines, work: Sequence[Reading]) -> list[pa.Table]:
    """All entries in one part, in order; of plain values only."""
    batches = [batch for each in work for batch in timelines.read(each)]
    rows = pa.Table.from_batches(batches, timelines.schema).to_pylist()
    rows.sort(key=lambda row: tuple(row[name] for name in timelines.order))
    return [timelines.decide(pa.Table.from_pylist(rows, timelines.schema))]


@dataclass
class Merging:
    """A table into which batches are merged as DeltaSink does it."""

    path: Path
    schema: pa.Schema
    keys: tuple[str, ...]
    order: Order = field(default_factory=Order)
    partition_by: tuple[str, ...] = ()
    retention: timedelta = timedelta(days=7)
    by_url: bool = False
    row_group_bytes: int = 1
    _batches: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        DeltaTable.create(
            str(self.path), Schema.from_arrow(self.schema), partition_by=list(self.partition_by)
        )

    @property
    def location(self) -> Location:
        return Location(self.path.as_uri() if self.by_url else str(self.path))

    def stage(self, rows: Sequence[dict[str, Any]], files: int = 2) -> list[FileWritten]:
        """Files of rows that have DELETES besides; one of each key."""
        schema = pa.schema([*self.given(rows), pa.field(DELETES, pa.bool_())])
        plan = WritePlan(self.location, schema, (), "_moldau/part", row_group_bytes=1)
        written: list[FileWritten] = []
        for part in range(files):
            batches = pa.Table.from_pylist(list(rows[part::files]), schema).to_batches(3)
            (told,) = write_files(plan, iter(batches))
            written += [
                msgspec.json.decode(text, type=FileWritten)
                for text in told.column("written").to_pylist()
            ]
        return [file for file in written if file.rows]

    def given(self, rows: Sequence[dict[str, Any]]) -> pa.Schema:
        names = {name for row in rows for name in row}
        return pa.schema([each for each in self.schema if each.name in names or not rows])

    def version(self, rows: Sequence[dict[str, Any]], files: int = 2) -> Versioning:
        """The same into a table with history."""
        written = self.stage(rows, files)
        schema = pa.schema([*self.given(rows), pa.field(DELETES, pa.bool_())])
        return Versioning(
            run_here,
            rearrange_here,
            2,
            Staged.of(self.location, schema, written),
            written,
            self.keys,
            self.order,
            DeletedKeys(self.location, self.keys, timedelta.max),
            self._plan,
        )

    def merge(self, rows: Sequence[dict[str, Any]], files: int = 2) -> Upserting:
        written = self.stage(rows, files)
        schema = pa.schema([*self.given(rows), pa.field(DELETES, pa.bool_())])
        return Upserting(
            run_here,
            2,
            Staged.of(self.location, schema, written),
            written,
            self.keys,
            self.order,
            DeletedKeys(self.location, self.keys, self.retention),
            self._plan,
        )

    def _plan(self, table: DeltaTable) -> WritePlan:
        return WritePlan(
            self.location,
            schema_of(table),
            tuple(self.partition_by),
            "part-merged",
            row_group_bytes=self.row_group_bytes,
            file_bytes=2000,
        )

    def commit(
        self,
        merge: Upserting | Versioning,
        between: Callable[[], None] = lambda: None,
        tries: int = 3,
    ) -> None:
        """Commit as the very next version, and look again if others were faster."""
        batch_id = next(self._batches)
        for _ in range(3):
            table = DeltaTable(str(self.path))
            changes = merge.against(table)
            between()
            between = lambda: None
            try:
                table.create_write_transaction(
                    changes.actions,
                    "append",
                    table.schema(),
                    list(self.partition_by),
                    commit_properties=Entry("app", "", batch_id).commit_properties(
                        changes.transactions
                    ),
                )
            except CommitFailedError:
                continue
            return
        raise AssertionError("never committed")

    def compact(self) -> None:
        DeltaTable(str(self.path)).optimize.compact(
            commit_properties=CommitProperties(max_commit_retries=0)
        )

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self.path)
