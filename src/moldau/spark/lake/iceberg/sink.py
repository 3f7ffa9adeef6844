"""The sink of Iceberg tables: what `foreachBatch` calls."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from moldau.spark.errors import log
from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.files import FileWritten, WritePlan, write_files
from moldau.spark.lake.iceberg.catalog import CatalogTable
from moldau.spark.lake.iceberg.commit import Commit
from moldau.spark.lake.iceberg.data_files import data_files
from moldau.spark.lake.iceberg.evolution import compare, prepare
from moldau.spark.lake.iceberg.journal import Marks, summary_of
from moldau.spark.lake.iceberg.schema import arrow_of, storable, transforms_of
from moldau.spark.lake.iceberg.store import TableStore
from moldau.spark.lake.iceberg.target import IcebergTarget, properties_of, removed_by
from moldau.spark.lake.iceberg.transforms import parse_transforms
from moldau.spark.lake.iceberg.upkeep import Upkeep
from moldau.spark.lake.journal import Entry, require_continuation
from moldau.spark.lake.merge.deleted_keys import FOLDER, DeletedKeys
from moldau.spark.lake.merge.merge import Merge, merge_in_spark
from moldau.spark.lake.merge.settings import MergeSettings, Scd, columns_of
from moldau.spark.lake.merge.staged import Staged, with_marks
from moldau.spark.lake.merge.target import Changes
from moldau.spark.lake.mode import Compression, Mode, require_settings
from moldau.spark.lake.offsets import Offsets
from moldau.spark.lake.order import ALONE
from moldau.spark.lake.schema import Fit, fit
from moldau.spark.lake.sink import COMMIT_WITHIN_S, LONGEST_PAUSE_S, QUERY_ID, Written
from moldau.spark.lake.tasks import map_in_arrow

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class IcebergSink:
    """Writes micro-batches to one Iceberg table, exactly once. Used from `foreachBatch`.

    `table` is its name in a catalog, `namespace.table`. The catalog is an SQLite file in
    `warehouse`, a local folder, unless `catalog` has the settings of another, as pyiceberg names
    them. Modes, keys, order, deletes, history and `app_id` are those of `DeltaSink`, and so are its
    promises: a batch that is in the table already, by (`app_id`, query, batch id), changes nothing.

    `partition_by` has columns and transforms of columns: `days(time)`, `bucket(16, id)`.

    `optimize_every` and `vacuum_every` count batches, 0 is never. A snapshot expires when it was
    superseded for as long as `retention`, or when there are more than `max_snapshots`.
    """

    def __init__(
        self,
        table: str,
        *,
        app_id: str,
        warehouse: str = "",
        catalog: Mapping[str, str] | None = None,
        mode: Mode = "append",
        keys: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        order_by: Sequence[str] = (),
        delete_where: str = "",
        delete_retention: timedelta = timedelta(days=7),
        merge_where: str = "",
        scd: Scd = 1,
        valid_from: str = "",
        optimize_every: int = 20,
        vacuum_every: int = 200,
        retention: timedelta = timedelta(days=7),
        max_snapshots: int = 500,
        file_bytes: int = 128 << 20,
        compression: Compression = "zstd",
    ) -> None:
        require_settings(mode, keys, compression, app_id)
        self.table = table
        self.mode = mode
        self.app_id = app_id
        self._target = CatalogTable(table, warehouse, catalog)
        self._merging = MergeSettings(
            tuple(keys),
            tuple(order_by),
            delete_where,
            delete_retention,
            merge_where,
            scd,
            valid_from,
        )
        self._partition_by = parse_transforms(partition_by)
        self._compression = compression
        self._file_bytes = file_bytes
        self._upkeep = Upkeep(optimize_every, vacuum_every, retention, max_snapshots, file_bytes)
        self._longest_ms = 0

    def require_fit(self, schema: StructType) -> None:
        """LakeError if batches of this schema cannot be written; the table stays as it is."""
        table = self._target.open()
        given = self._stored(schema, table)
        self._require_history(table, given)
        _, fitted = compare(self._target, given, self._partition_by)
        self._merging.require_columns(self.table, fitted)

    def committed_offsets(self) -> tuple[int, Offsets] | None:
        """Return the last batch of the application in the table, and how far each partition is in
        there; None when the table does not exist, or has nothing of this application."""
        table = self._target.open()
        last = None if table is None else Marks(table, self.app_id).last
        if last is None:
            return None
        if last.offsets is None:
            raise LakeError(
                f"{self.table} has batches of {self.app_id!r} up to {last.batch_id}, but they "
                "were written without offsets; pass offsets to IcebergSink.write"
            )
        return last.batch_id, Offsets.at(last.offsets.ends)

    def write(self, batch: DataFrame, batch_id: int, offsets: Offsets | None = None) -> Written:
        """Make the batch part of the table, in one transaction; the class says what that promises.

        `offsets` says which records the batch holds; they go into the same transaction.
        """
        begun = time.monotonic()
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
        entry = Entry(self.app_id, query_id, batch_id, offsets=offsets)
        table = self._target.open()
        if table is not None and self._is_done(Marks(table, self.app_id), entry):
            if query_id:
                # Spark takes watermark, state and observed metrics of a batch from running it, and
                # stops the query over metrics that never came.
                batch.write.format("noop").mode("overwrite").save()
            return Written(skipped=True)
        given = self._stored(batch.schema, table)
        self._require_history(table, given)
        table, fitted = prepare(self._target, given, self._partition_by)
        self._merging.require_columns(self.table, fitted)
        files = self._write_files(batch, batch_id, fitted, table)
        self._merging.require_values(self.table, files)
        took_ms = int((time.monotonic() - begun) * 1000)
        spark = batch.sparkSession
        merge = self._merge(spark, files, fitted, table) if self.mode == "upsert" else None
        is_new = self._commit(files, merge, fitted, replace(entry, took_ms=took_ms))
        if merge is not None:
            for file in files:
                TableStore.of(table).remove(file.path)
        if not is_new:
            return Written(skipped=True)
        self._longest_ms = max(self._longest_ms, int((time.monotonic() - begun) * 1000))
        self._upkeep.after(spark, self._target, batch_id, self._longest_ms)
        rows, size = sum(file.rows for file in files), sum(file.size for file in files)
        return Written(rows=rows, files=len(files), bytes=size)

    def _is_done(self, marks: Marks, entry: Entry) -> bool:
        """Return whether the batch is in the table; OffsetConflict if other batches hold its
        records."""
        if entry.is_in(marks):
            return True
        # A query that replaces rows may start again from the beginning; one that adds rows may not.
        if self.mode == "append":
            for missed in require_continuation(self.table, marks, marks.last, entry):
                log.warning("%s continues without %s, which are in no batch", self.table, missed)
        return False

    def _write_files(
        self, batch: DataFrame, batch_id: int, fitted: Fit, table: Table
    ) -> list[FileWritten]:
        plan, stored = self._plan(table, batch_id), _stored_of(table, fitted)
        required = {field.name for field in plan.schema if not field.nullable}
        counted = tuple(required | self._merging.counted(fitted))
        if self.mode == "upsert":
            # These files are merged into the table, they do not become part of it.
            batch = self._merging.staged(batch, fitted)
            plan = replace(
                plan,
                schema=with_marks(stored),
                transforms=(),
                prefix=f"{FOLDER}/{plan.prefix}",
                counted=(*counted, ALONE),
            )
        else:
            batch = batch.select(columns_of(fitted))
            plan = replace(plan, schema=stored, counted=counted)
        rows = map_in_arrow(batch, partial(write_files, plan), "written string").collect()
        return [msgspec.json.decode(row["written"], type=FileWritten) for row in rows]

    def _plan(self, table: Table, batch_id: int) -> WritePlan:
        """Return how tasks write files of the table, with all its columns."""
        return WritePlan(
            location=TableStore.of(table),
            schema=arrow_of(table.schema()),
            partition_by=(),
            prefix=f"part-{batch_id:05}",
            transforms=transforms_of(self.table, table),
            keeps_footer=True,
            compression=self._compression,
            file_bytes=self._file_bytes,
        )

    def _merge(
        self, spark: SparkSession, files: Sequence[FileWritten], fitted: Fit, table: Table
    ) -> Merge:
        store, settings = TableStore.of(table), self._merging
        staged = Staged.of(store, with_marks(_stored_of(table, fitted)), files)
        deleted = DeletedKeys(store, settings.keys, settings.kept_deletes)
        return merge_in_spark(spark, settings, staged, files, settings.order(fitted), deleted)

    def _commit(
        self, files: Sequence[FileWritten], merge: Merge | None, fitted: Fit, entry: Entry
    ) -> bool:
        """Return whether this made the batch part of the table; False if it was there.

        A commit succeeds only right after the snapshot in which the batch was looked for.
        """
        deadline = time.monotonic() + COMMIT_WITHIN_S
        pause_s = 0.01
        while True:
            table = self._target.open()
            if table is None:
                raise LakeError(
                    f"{self.table} was removed while batch {entry.batch_id} was written"
                )
            marks = Marks(table, self.app_id)
            if self._is_done(marks, entry):
                return False
            if fit(self.table, arrow_of(table.schema()), fitted.schema).added:
                raise LakeError(
                    f"{self.table} lost columns while batch {entry.batch_id} was written"
                )
            self._require_history(table, fitted.schema)
            commit = self._staged(table, marks, files, merge, entry)
            if commit is None or commit.is_done_once():
                return True
            if time.monotonic() > deadline:
                raise LakeError(
                    f"{self.table}: batch {entry.batch_id} was not committed within "
                    f"{COMMIT_WITHIN_S:g} s: {commit.failure}"
                ) from commit.failure
            time.sleep(random.uniform(0, pause_s))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _staged(
        self,
        table: Table,
        marks: Marks,
        files: Sequence[FileWritten],
        merge: Merge | None,
        entry: Entry,
    ) -> Commit | None:
        """Return the commit of a batch to this table; None if there is nothing to remember."""
        last = marks.last
        if entry.offsets is not None and last is not None and last.offsets is not None:
            entry = replace(entry, offsets=entry.offsets.after(last.offsets))
        is_news = entry.offsets is not None and entry.offsets.has_records
        if self.mode != "complete" and not files and not is_news:
            return None
        changes = Changes(added=list(files))
        if merge is not None:
            changes = merge.against(IcebergTarget(table, self._plan(table, entry.batch_id)))
        removed = removed_by(changes)
        if self.mode == "complete":
            removed = [task.file for task in table.scan().plan_files()]
        added = data_files(table, TableStore.of(table), changes.added)
        commit = Commit(table)
        commit.set_properties(marks.property_with(entry) | properties_of(changes))
        commit.change_files(added, removed, summary_of(entry))
        return commit

    def _stored(self, schema: StructType, table: Table | None) -> pa.Schema:
        known = () if table is None else table.schema().column_names
        by = [each.column for each in self._partition_by]
        return storable(self._merging.stored(self.table, schema, known, by))

    def _require_history(self, table: Table | None, given: pa.Schema) -> None:
        if table is None:
            return

        def has_rows() -> bool:
            return any(True for _ in table.scan().plan_files())

        known = table.schema().column_names
        self._merging.require_history(self.table, known, has_rows, given.names)


def _stored_of(table: Table, fitted: Fit) -> pa.Schema:
    """Return the columns of the table that a batch has, with their ids."""
    schema = arrow_of(table.schema())
    return pa.schema([schema.field(name) for _, name in fitted.columns])
