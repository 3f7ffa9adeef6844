"""The sink: what `foreachBatch` calls."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from moldau.spark.errors import log
from moldau.spark.lake.errors import LakeError, SchemaConflict
from moldau.spark.lake.evolution import compare, prepare, schema_of
from moldau.spark.lake.files import FileWritten, WritePlan, read_rows, write_files
from moldau.spark.lake.journal import Entry, Journal, open_table, require_continuation
from moldau.spark.lake.location import Location
from moldau.spark.lake.offsets import Offsets
from moldau.spark.lake.order import ALONE, last_rows, older
from moldau.spark.lake.schema import Fit, arrow_schema, fit
from moldau.spark.lake.tasks import map_in_arrow
from moldau.spark.lake.upkeep import Upkeep
from moldau.spark.lake.upsert import MARKS, merge
from moldau.spark.names import RECORD_ORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Mode = Literal["append", "upsert", "complete"]
MODES = ("append", "upsert", "complete")
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
    deletes instead. `complete` replaces all rows, for queries in the output mode of that name.

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
        optimize_every: int = 20,
        vacuum_every: int = 200,
        retention: timedelta = timedelta(days=7),
        file_bytes: int = 128 << 20,
        compression: Literal["zstd", "snappy"] = "zstd",
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}, but must be one of {', '.join(MODES)}")
        if (mode == "upsert") != bool(keys):
            raise ValueError(f"keys are needed for upsert, and only for upsert: mode is {mode!r}")
        if mode != "upsert" and (order_by or delete_where):
            raise ValueError(f"order_by and delete_where are for upsert: mode is {mode!r}")
        if compression not in ("zstd", "snappy"):
            raise ValueError(f"compression is {compression!r}, but must be zstd or snappy")
        if not app_id:
            raise ValueError("app_id must not be empty; it names this writer in the table's log")
        self.path = path
        self.mode = mode
        self.app_id = app_id
        self._location = Location.parse(path, storage_options)
        self._keys = tuple(keys)
        self._partition_by = tuple(partition_by)
        self._order_by = tuple(order_by)
        self._delete_where = delete_where
        self._compression = compression
        self._file_bytes = file_bytes
        self._upkeep = Upkeep(optimize_every, vacuum_every, retention, file_bytes)
        self._journal = Journal(app_id)
        self._longest_ms = 0

    def require_fit(self, schema: StructType) -> None:
        """LakeError if batches of this schema cannot be written; the table stays as it is."""
        _, fitted = compare(self._location, self.path, self._stored(schema), self._partition_by)
        self._require_columns(fitted)

    def write(self, batch: DataFrame, batch_id: int, offsets: Offsets | None = None) -> Written:
        """Make the batch part of the table, in one transaction; the class says what that promises.

        `offsets` says which records the batch holds; they go into the same transaction.
        """
        begun = time.monotonic()
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
        entry = Entry(self.app_id, query_id, batch_id, offsets=offsets)
        given = self._stored(batch.schema)
        table = open_table(self._location)
        if table is not None and self._is_done(table, entry):
            if query_id:
                # Spark takes watermark, state and observed metrics of a batch from running it, and
                # stops the query over metrics that never came.
                batch.write.format("noop").mode("overwrite").save()
            return Written(skipped=True)
        table, fitted = prepare(self._location, self.path, given, self._partition_by)
        self._require_columns(fitted)
        files = self._write_files(batch, batch_id, fitted, table)
        self._require_values(files)
        took_ms = int((time.monotonic() - begun) * 1000)
        committed = self._commit(files, fitted, replace(entry, took_ms=took_ms))
        if self.mode == "upsert":
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
                log.warning("%s continues without %s, which no batch holds", self.path, missed)
        return False

    def _write_files(
        self, batch: DataFrame, batch_id: int, fitted: Fit, table: DeltaTable
    ) -> list[FileWritten]:
        from pyspark.sql import functions as f

        columns = [f.col(_quoted(given)).alias(name) for given, name in fitted.columns]
        required = {field.name for field in schema_of(table) if not field.nullable}
        schema, partition_by = fitted.schema, tuple(table.metadata().partition_columns)
        counted = tuple(required.union(self._keys))
        if self.mode == "upsert":
            # These files are merged into the table, they do not become part of it.
            schema, partition_by = _with_marks(schema), ()
            counted = (*counted, ALONE)
            order_by = self._order_columns(fitted)
            batch = last_rows(batch, columns, self._keys, order_by, self._delete_where)
        else:
            batch = batch.select(columns)
        plan = WritePlan(
            location=self._location,
            schema=schema,
            partition_by=partition_by,
            prefix=f"part-{batch_id:05}",
            counted=counted,
            compression=self._compression,
            file_bytes=self._file_bytes,
        )
        rows = map_in_arrow(batch, partial(write_files, plan), "written string").collect()
        return [msgspec.json.decode(row["written"], type=FileWritten) for row in rows]

    def _commit(self, files: Sequence[FileWritten], fitted: Fit, entry: Entry) -> DeltaTable | None:
        """Return the table with the batch, or None if it had it. Checks and commits on the same
        handle.

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
            version = table.version()
            try:
                self._commit_on(table, files, fitted, entry)
            except CommitFailedError as problem:
                latest = open_table(self._location)
                if latest is None or latest.version() == version:
                    raise
                if time.monotonic() > deadline:
                    raise LakeError(
                        f"{self.path}: batch {entry.batch_id} was not committed within "
                        f"{COMMIT_WITHIN_S:g} s: other writers were always faster: {problem}"
                    ) from problem
                time.sleep(random.uniform(0, pause_s))
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            else:
                return open_table(self._location)

    def _commit_on(
        self, table: DeltaTable, files: Sequence[FileWritten], fitted: Fit, entry: Entry
    ) -> None:
        last = self._journal.last(table)
        if entry.offsets is not None and last is not None and last.offsets is not None:
            entry = replace(entry, offsets=entry.offsets.after(last.offsets))
        properties = entry.commit_properties()
        version = table.version()
        actions: list[AddAction | RemoveAction] = []
        if self.mode != "upsert":
            actions += map(_add_action, files)
        if self.mode == "upsert" and files:
            names = [file.path for file in files]
            rows = read_rows(self._location, names, _with_marks(fitted.schema))
            size = sum(file.size for file in files)
            condition = older(fitted.schema.names, self._order_columns(fitted))
            merge(table, rows, size, self._keys, condition, properties)
            if table.version() > version:
                return
        is_news = entry.offsets is not None and entry.offsets.has_records
        if self.mode != "complete" and not files and not is_news:
            # Nothing came, and nothing was passed over: there is nothing to remember.
            return
        table.create_write_transaction(
            actions,
            "overwrite" if self.mode == "complete" else "append",
            table.schema(),
            list(table.metadata().partition_columns),
            commit_properties=properties,
        )

    def _stored(self, schema: StructType) -> pa.Schema:
        """Return what the table keeps of a batch: everything, except the record order if there is
        `order_by`.
        """
        given = arrow_schema(self.path, schema)
        if self._order_by and RECORD_ORDER in given.names:
            return given.remove(given.get_field_index(RECORD_ORDER))
        return given

    def _order_columns(self, fitted: Fit) -> tuple[str, ...]:
        names = dict(fitted.columns)
        return tuple(names[name] for name in self._order_by)

    def _require_columns(self, fitted: Fit) -> None:
        for name in self._keys:
            if name not in fitted.schema.names:
                raise SchemaConflict(
                    self.path, name, "is a key, but not in the batch", "select it, or change keys"
                )
        given = dict(fitted.columns)
        for name in self._order_by:
            if name not in given:
                raise SchemaConflict(
                    self.path, name, "is in order_by, but not in the batch", "select it"
                )
            kind = fitted.schema.field(given[name]).type
            if pa.types.is_nested(kind):
                raise SchemaConflict(
                    self.path, name, f"is {kind}, which has no order", "choose another order_by"
                )

    def _require_values(self, files: Sequence[FileWritten]) -> None:
        for file in files:
            for name, nulls in file.nulls.items():
                if nulls and name == ALONE:
                    raise LakeError(
                        f"{self.path}: {nulls} or more of {', '.join(self._keys)} have "
                        "several rows in the batch, and nothing says which is newer; give "
                        "order_by"
                    )
                if nulls:
                    why = "a key" if name in self._keys else "declared not null"
                    raise SchemaConflict(
                        self.path,
                        name,
                        f"is {why}, but null in {nulls} rows or more of the batch",
                        "filter them out, or fill them",
                    )


def _with_marks(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *MARKS])


def _add_action(file: FileWritten) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=file.partition_values,
        modification_time=file.modified_ms,
        data_change=True,
        stats=file.stats,
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
