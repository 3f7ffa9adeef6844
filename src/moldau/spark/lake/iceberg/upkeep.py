"""Upkeep of an Iceberg table: joins small files, lets snapshots expire, removes unused files.

These are transactions of their own, after the batch's. When one fails, the batch is in the table
all the same, so it is logged and done at the next turn.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import ancestors_of

from moldau.spark.errors import log
from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.files import FileWritten, WritePlan, written_files
from moldau.spark.lake.iceberg.catalog import CatalogTable
from moldau.spark.lake.iceberg.commit import Commit
from moldau.spark.lake.iceberg.data_files import data_files
from moldau.spark.lake.iceberg.journal import entries
from moldau.spark.lake.iceberg.reading import Reading
from moldau.spark.lake.iceberg.schema import arrow_of, transforms_of
from moldau.spark.lake.iceberg.store import TableStore
from moldau.spark.lake.iceberg.unused_files import unused_files
from moldau.spark.lake.tasks import run_tasks
from moldau.spark.lake.upkeep import MANY_FILES, SHORTEST_RETENTION

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

# In the summary of a snapshot that changes files and no rows.
UPKEEP = "moldau.upkeep"


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The schedule of upkeep, in batches (0 means never), and its settings."""

    optimize_every: int
    vacuum_every: int
    retention: timedelta
    max_snapshots: int
    file_bytes: int

    def __post_init__(self) -> None:
        if self.retention < SHORTEST_RETENTION:
            raise ValueError(
                f"retention is {self.retention}, but must be {SHORTEST_RETENTION} or more: "
                "otherwise files that are being written or read would be removed"
            )
        if self.max_snapshots < 1:
            raise ValueError(f"max_snapshots is {self.max_snapshots}, but must be 1 or more")

    def after(
        self, spark: SparkSession, target: CatalogTable, batch_id: int, longest_ms: int
    ) -> None:
        """Do what is due after that batch; a query that restarts goes on counting."""
        due: list[tuple[str, Callable[[Table], object]]] = []
        if self.optimize_every and (batch_id + 1) % self.optimize_every == 0:
            due.append(("small files could not be joined", partial(self.compact, spark)))
            due.append(("snapshots could not expire", self.expire))
        if self.vacuum_every and (batch_id + 1) % self.vacuum_every == 0:
            sweep = partial(self.remove_unused, longest_ms=longest_ms)
            due.append(("old files could not be removed", sweep))
        for what, work in due:
            try:
                table = target.open()
                if table is not None:
                    work(table)
            except Exception as problem:
                # Whatever the catalog or the store says: the batch is in the table.
                log.warning("%s: %s; trying again later: %s", target.name, what, problem)

    def compact(self, spark: SparkSession, table: Table) -> int:
        """Join small files, in partitions that have many; return how many were joined."""
        groups = self._small_groups(table)
        if not groups:
            return 0
        name = ".".join(table.name())
        plan = WritePlan(
            location=TableStore.of(table),
            schema=arrow_of(table.schema()),
            partition_by=(),
            prefix="joined",
            transforms=transforms_of(name, table),
            keeps_footer=True,
            file_bytes=self.file_bytes,
        )
        joined = run_tasks(spark, partial(_join, plan, Reading.of(table)), groups)
        commit = Commit(table)
        removed = [task.file for group in groups for task in group]
        added = data_files(table, TableStore.of(table), chain.from_iterable(joined))
        commit.change_files(added, removed, {UPKEEP: "compact"})
        if not commit.is_done_once():
            raise LakeError(f"another writer was faster: {commit.failure}")
        return len(removed)

    def expire(self, table: Table) -> int:
        """Forget snapshots that were superseded long ago, or are too many; return how many.

        One that was current within the last hour stays, for those who still read it.
        """
        now_ms = time.time_ns() // 1_000_000
        history = list(ancestors_of(table.current_snapshot(), table.metadata))
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        found = []
        for rank, (newer, snapshot) in enumerate(pairwise(history), 1):
            superseded_for = timedelta(milliseconds=now_ms - newer.timestamp_ms)
            is_old = superseded_for > self.retention or rank >= self.max_snapshots
            if superseded_for > SHORTEST_RETENTION and is_old and snapshot.snapshot_id not in kept:
                found.append(snapshot.snapshot_id)
        if found:
            table.maintenance.expire_snapshots().by_ids(found).commit()
        return len(found)

    def remove_unused(self, table: Table, longest_ms: int) -> list[str]:
        """Remove files that no snapshot has, those of failed batches too; return their paths."""
        longest_ms = max([longest_ms, *(entry.took_ms for entry in entries(table))])
        # A file may be as old as its batch when it is committed; twice that, for clocks differ.
        least = timedelta(milliseconds=2 * longest_ms) + SHORTEST_RETENTION
        return unused_files(table, max(self.retention, least))

    def _small_groups(self, table: Table) -> list[list[FileScanTask]]:
        """Return files to be joined, each group into one or few."""
        spec_id = table.spec().spec_id
        partitions: dict[Any, list[FileScanTask]] = defaultdict(list)
        for task in table.scan().plan_files():
            file = task.file
            if file.file_size_in_bytes < self.file_bytes // 2 and file.spec_id == spec_id:
                partitions[file.partition].append(task)
        groups: list[list[FileScanTask]] = []
        for tasks in partitions.values():
            if len(tasks) >= MANY_FILES:
                groups += self._packed(tasks)
        return groups

    def _packed(self, tasks: Sequence[FileScanTask]) -> list[list[FileScanTask]]:
        groups: list[list[FileScanTask]] = []
        room = 0
        for task in tasks:
            size = task.file.file_size_in_bytes
            if size > room:
                groups.append([])
                room = self.file_bytes
            groups[-1].append(task)
            room -= size
        return [group for group in groups if len(group) > 1]


def _join(plan: WritePlan, reading: Reading, group: Sequence[FileScanTask]) -> list[FileWritten]:
    def batches() -> Iterator[pa.RecordBatch]:
        for task in group:
            yield from reading.batches(task, plan.schema)

    return written_files(plan, batches())
