"""The sink: what `foreachBatch` calls."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from moldau.spark.errors import log
from moldau.spark.lake.delta_target import DeltaTarget, actions_of, transactions_of
from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.evolution import compare, prepare, require_mergeable, schema_of
from moldau.spark.lake.files import FileWritten, WritePlan, write_files
from moldau.spark.lake.glue import GlueEntry
from moldau.spark.lake.journal import Entry, Journal, open_table, require_continuation
from moldau.spark.lake.location import Location
from moldau.spark.lake.merge.deleted_keys import FOLDER, DeletedKeys
from moldau.spark.lake.merge.merge import Merge, merge_in_spark
from moldau.spark.lake.merge.settings import MergeSettings, Scd, columns_of
from moldau.spark.lake.merge.staged import Staged, with_marks
from moldau.spark.lake.merge.target import Changes
from moldau.spark.lake.mode import Compression, Mode, require_settings
from moldau.spark.lake.offsets import Offsets
from moldau.spark.lake.order import ALONE
from moldau.spark.lake.schema import Fit, fit
from moldau.spark.lake.tasks import map_in_arrow
from moldau.spark.lake.upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Set by Spark on the thread that runs a batch; it stays the same as long as the checkpoint.
QUERY_ID = "sql.streaming.queryId"
COMMIT_WITHIN_S = 120.0
LONGEST_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a batch; `skipped` if the table already had it."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    skipped: bool = False


class DeltaSink:
    """Writes micro-batches to one Delta table, exactly once. Used from `foreachBatch`.

    `append` adds the rows. `upsert` replaces rows with the same `keys` and adds the others; of rows
    with the same keys the newest counts, by the columns `order_by` or in the order of the records
    (see `moldau.spark.lake.order`), and a row for which the SQL condition `delete_where` holds
    deletes instead: an older row does not bring it back, for as long as `delete_retention`. A row
    is left as it is where `merge_where`, SQL over `source` and `target`, does not hold. With
    `scd=2` the table keeps all versions of a row (see `moldau.spark.lake.merge.history`), valid
    from the column `valid_from`, or else from the first of `order_by`. `complete` replaces all
    rows, for queries in the output mode of that name.

    `app_id` names the writer in the table's log, and stays the same over restarts. A batch that is
    in the table already, by (`app_id`, query, batch id), changes nothing. After a crash at any
    moment the batch is in the table or it is not; files that it left behind are vacuum's.

    `optimize_every` and `vacuum_every` count batches, 0 is never.
    """

    def __init__(
        self,
        path: str,
        *,
        app_id: str,
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
        file_bytes: int = 128 << 20,
        compression: Compression = "zstd",
        storage_options: Mapping[str, str] | None = None,
        table: str = "",
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        require_settings(mode, keys, compression, app_id)
        self.path = path
        self.mode = mode
        self.app_id = app_id
        self._location = Location.parse(path, storage_options)
        self._partition_by = tuple(partition_by)
        self._merging = MergeSettings(
            tuple(keys),
            tuple(order_by),
            delete_where,
            delete_retention,
            merge_where,
            scd,
            valid_from,
        )
        self._deleted = DeletedKeys(self._location, keys, self._merging.kept_deletes)
        self._compression = compression
        self._file_bytes = file_bytes
        deleted = self._location if mode == "upsert" else None
        self._upkeep = Upkeep(optimize_every, vacuum_every, retention, file_bytes, deleted)
        self._journal = Journal(app_id)
        self._longest_ms = 0
        self._entry: GlueEntry | None = None
        if table:
            self._entry = GlueEntry(table, catalog or {}, self._location)
        elif catalog:
            raise LakeError(f"{path}: give 'table', the name that it has in the catalog")

    def require_fit(self, schema: StructType) -> None:
        """LakeError if batches of this schema cannot be written; the table stays as it is."""
        given = self._stored(schema, open_table(self._location))
        table, fitted = compare(self._location, self.path, given, self._partition_by)
        self._merging.require_columns(self.path, fitted)
        if self._entry is not None:
            self._entry.require_free()
        if table is not None and self.mode == "upsert":
            require_mergeable(table, self.path, self._merging, given.names)

    def write(self, batch: DataFrame, batch_id: int, offsets: Offsets | None = None) -> Written:
        """Make the batch part of the table, in one transaction; the class says what that promises.

        `offsets` says which records the batch holds; they go into the same transaction.
        """
        begun = time.monotonic()
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
        entry = Entry(self.app_id, query_id, batch_id, offsets=offsets)
        table = open_table(self._location)
        given = self._stored(batch.schema, table)
        if table is not None and self._is_done(table, entry):
            if query_id:
                # Spark takes watermark, state and observed metrics of a batch from running it, and
                # stops the query over metrics that never came.
                batch.write.format("noop").mode("overwrite").save()
            return Written(skipped=True)
        if table is not None and self.mode == "upsert":
            require_mergeable(table, self.path, self._merging, given.names)
        table, fitted = prepare(self._location, self.path, given, self._partition_by)
        self._merging.require_columns(self.path, fitted)
        if self._entry is not None:
            # Before the rows: a batch that is committed is not looked at again.
            self._entry.register(schema_of(table))
        files = self._write_files(batch, batch_id, fitted, table)
        self._merging.require_values(self.path, files)
        merge = self._merge(batch.sparkSession, files, fitted) if self.mode == "upsert" else None
        committed = self._commit(files, merge, fitted, entry, begun)
        if merge is not None:
            for file in files:
                self._location.remove(file.path)
        if committed is None:
            return Written(skipped=True)
        self._longest_ms = max(self._longest_ms, int((time.monotonic() - begun) * 1000))
        self._upkeep.after(committed, batch_id, self._longest_ms)
        rows, size = sum(file.rows for file in files), sum(file.size for file in files)
        return Written(rows=rows, files=len(files), bytes=size)

    def _is_done(self, table: DeltaTable, entry: Entry) -> bool:
        """Return whether the batch is in the table; OffsetConflict if other batches hold its
        records."""
        if entry.is_in(table):
            return True
        # A query that replaces rows may start again from the beginning; one that adds rows may not.
        if self.mode == "append":
            last = self._journal.last(table)
            for missed in require_continuation(self.path, table, last, entry):
                log.warning("%s continues without %s, which are in no batch", self.path, missed)
        return False

    def _write_files(
        self, batch: DataFrame, batch_id: int, fitted: Fit, table: DeltaTable
    ) -> list[FileWritten]:
        required = {field.name for field in schema_of(table) if not field.nullable}
        schema, partition_by = fitted.schema, tuple(table.metadata().partition_columns)
        counted = tuple(required | self._merging.counted(fitted))
        folder = ""
        if self.mode == "upsert":
            # These files are merged into the table, they do not become part of it.
            schema, partition_by, folder = with_marks(schema), (), f"{FOLDER}/"
            counted = (*counted, ALONE)
            batch = self._merging.staged(batch, fitted)
        else:
            batch = batch.select(columns_of(fitted))
        plan = WritePlan(
            location=self._location,
            schema=schema,
            partition_by=partition_by,
            prefix=f"{folder}part-{batch_id:05}",
            counted=counted,
            compression=self._compression,
            file_bytes=self._file_bytes,
        )
        rows = map_in_arrow(batch, partial(write_files, plan), "written string").collect()
        return [msgspec.json.decode(row["written"], type=FileWritten) for row in rows]

    def _merge(self, spark: SparkSession, files: Sequence[FileWritten], fitted: Fit) -> Merge:
        staged = Staged.of(self._location, with_marks(fitted.schema), files)
        order = self._merging.order(fitted)
        return merge_in_spark(spark, self._merging, staged, files, order, self._deleted)

    def _plan(self, table: DeltaTable) -> WritePlan:
        """Return how rows of a merge are written, in all columns of the table as it is now."""
        return WritePlan(
            location=self._location,
            schema=schema_of(table),
            partition_by=tuple(table.metadata().partition_columns),
            prefix="part-merged",
            compression=self._compression,
            file_bytes=self._file_bytes,
        )

    def _commit(
        self,
        files: Sequence[FileWritten],
        merge: Merge | None,
        fitted: Fit,
        entry: Entry,
        begun: float,
    ) -> DeltaTable | None:
        """Return the table with the batch, or None if it had it. Checks and commits on the same
        handle. `begun` is when the batch did.

        A commit succeeds only as the very next version after the one that was checked.
        """
        deadline = time.monotonic() + COMMIT_WITHIN_S
        pause_s = 0.01
        while True:
            table = open_table(self._location)
            if table is None:
                raise LakeError(f"{self.path} was removed while batch {entry.batch_id} was written")
            if self._is_done(table, entry):
                return None
            if fit(self.path, schema_of(table), fitted.schema).added:
                raise LakeError(
                    f"{self.path} lost columns while batch {entry.batch_id} was written"
                )
            if merge is not None:
                require_mergeable(table, self.path, self._merging, fitted.schema.names)
            version = table.version()
            try:
                self._commit_on(table, files, merge, entry, begun)
            except CommitFailedError as problem:
                latest = open_table(self._location)
                if latest is None or latest.version() == version:
                    raise
                if time.monotonic() > deadline:
                    raise LakeError(
                        f"{self.path}: batch {entry.batch_id} was not committed within "
                        f"{COMMIT_WITHIN_S:g} s: other writers were faster each time: {problem}"
                    ) from problem
                time.sleep(random.uniform(0, pause_s))
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            else:
                return open_table(self._location)

    def _commit_on(
        self,
        table: DeltaTable,
        files: Sequence[FileWritten],
        merge: Merge | None,
        entry: Entry,
        begun: float,
    ) -> None:
        last = self._journal.last(table)
        if entry.offsets is not None and last is not None and last.offsets is not None:
            entry = replace(entry, offsets=entry.offsets.after(last.offsets))
        changes = Changes(added=list(files))
        if merge is not None:
            changes = merge.against(DeltaTarget(table, self._plan(table)))
        is_news = entry.offsets is not None and entry.offsets.has_records
        if self.mode != "complete" and not files and not is_news:
            # Nothing came, and nothing was passed over: there is nothing to remember.
            return
        entry = replace(entry, took_ms=int((time.monotonic() - begun) * 1000))
        table.create_write_transaction(
            actions_of(changes),
            "overwrite" if self.mode == "complete" else "append",
            table.schema(),
            list(table.metadata().partition_columns),
            commit_properties=entry.commit_properties(transactions_of(changes)),
        )

    def _stored(self, schema: StructType, table: DeltaTable | None) -> pa.Schema:
        known = () if table is None else schema_of(table).names
        return self._merging.stored(self.path, schema, known, self._partition_by)
