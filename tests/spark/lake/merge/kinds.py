"""Merges into tables of either kind."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from pyiceberg.table import Table

from moldau.spark.lake.delta_target import DeltaTarget, actions_of, transactions_of
from moldau.spark.lake.evolution import schema_of
from moldau.spark.lake.files import WritePlan, written_files
from moldau.spark.lake.iceberg.catalog import CatalogTable
from moldau.spark.lake.iceberg.commit import Commit
from moldau.spark.lake.iceberg.data_files import data_files
from moldau.spark.lake.iceberg.journal import Marks, summary_of
from moldau.spark.lake.iceberg.reading import Reading
from moldau.spark.lake.iceberg.schema import arrow_of, spec_of, table_schema, transforms_of
from moldau.spark.lake.iceberg.store import TableStore
from moldau.spark.lake.iceberg.target import IcebergTarget, properties_of, removed_by
from moldau.spark.lake.iceberg.transforms import parse_transforms
from moldau.spark.lake.iceberg.unused_files import unused_files
from moldau.spark.lake.journal import Entry
from moldau.spark.lake.location import Location
from moldau.spark.lake.merge.deleted_keys import FOLDER, sweep
from moldau.spark.lake.merge.target import Changes
from tests.spark.lake.merge.merging import Merging
from tests.spark.lake.tables import rows_of

FILE_BYTES = 2000


@dataclass
class DeltaMerging(Merging):
    by_url: bool = False

    def __post_init__(self) -> None:
        DeltaTable.create(
            str(self.path), Schema.from_arrow(self.schema), partition_by=list(self.partition_by)
        )

    @property
    def location(self) -> Location:
        return Location(self.path.as_uri() if self.by_url else str(self.path))

    @property
    def remembered(self) -> Path:
        return self.path / FOLDER

    def target(self) -> DeltaTarget:
        table = DeltaTable(str(self.path))
        plan = WritePlan(
            self.location,
            schema_of(table),
            tuple(self.partition_by),
            "part-merged",
            row_group_bytes=self.row_group_bytes,
            file_bytes=FILE_BYTES,
        )
        return DeltaTarget(table, plan)

    def commits(self, target: DeltaTarget, changes: Changes, batch_id: int) -> bool:
        entry = Entry("app", "", batch_id)
        try:
            target.table.create_write_transaction(
                actions_of(changes),
                "append",
                target.table.schema(),
                list(self.partition_by),
                commit_properties=entry.commit_properties(transactions_of(changes)),
            )
        except CommitFailedError:
            return False
        return True

    def compact(self) -> None:
        DeltaTable(str(self.path)).optimize.compact(
            commit_properties=CommitProperties(max_commit_retries=0)
        )

    def sweep(self, older_than: timedelta) -> None:
        before_ms = time.time_ns() // 1_000_000 - int(older_than / timedelta(milliseconds=1))
        sweep(self.location, self.target().deleted_keys, before_ms)

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self.path)

    def files(self) -> set[str]:
        return set(DeltaTable(str(self.path)).file_uris())


@dataclass
class IcebergMerging(Merging):
    _target: CatalogTable = field(init=False)
    _store: TableStore = field(init=False)

    def __post_init__(self) -> None:
        self._target = CatalogTable("shop.t", str(self.path))
        schema = table_schema(self.schema)
        self._target.create(schema, spec_of(schema, parse_transforms(self.partition_by)))
        self._store = TableStore.of(self.table())

    @property
    def location(self) -> TableStore:
        return self._store

    @property
    def remembered(self) -> Path:
        return self.path / "shop" / "t" / "data" / FOLDER

    def table(self) -> Table:
        table = self._target.open()
        assert table is not None
        return table

    def target(self) -> IcebergTarget:
        table = self.table()
        return IcebergTarget(table, self._plan(table))

    def _plan(self, table: Table) -> WritePlan:
        return WritePlan(
            self.location,
            arrow_of(table.schema()),
            (),
            "part",
            transforms=transforms_of("t", table),
            keeps_footer=True,
            row_group_bytes=self.row_group_bytes,
            file_bytes=FILE_BYTES,
        )

    def commits(self, target: IcebergTarget, changes: Changes, batch_id: int) -> bool:
        entry = Entry("app", "", batch_id)
        commit = Commit(target.table)
        marks = Marks(target.table, "app").property_with(entry)
        commit.set_properties(marks | properties_of(changes))
        added = data_files(target.table, self.location, changes.added)
        commit.change_files(added, removed_by(changes), summary_of(entry))
        return commit.is_done_once()

    def compact(self) -> None:
        table = self.table()
        tasks = list(table.scan().plan_files())
        if tasks:
            plan, reading = self._plan(table), Reading.of(table)
            rows = chain.from_iterable(reading.batches(task, plan.schema) for task in tasks)
            added = data_files(table, self.location, written_files(plan, rows))
            commit = Commit(table)
            commit.change_files(added, [task.file for task in tasks])
            assert commit.is_done_once()

    def sweep(self, older_than: timedelta) -> None:
        unused_files(self.table(), older_than)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table().scan().to_arrow().to_pylist()
        return rows

    def files(self) -> set[str]:
        return {task.file.file_path for task in self.table().scan().plan_files()}


KINDS: dict[str, type[Merging]] = {"delta": DeltaMerging, "iceberg": IcebergMerging}
