"""Evolution of a table: created for the first batch, with new columns where it lacks some.

These are transactions of their own, before the batch's: a crash in between leaves columns of nulls.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from moldau.spark.errors import log
from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.journal import open_table
from moldau.spark.lake.location import Location
from moldau.spark.lake.merge.settings import MergeSettings
from moldau.spark.lake.schema import Fit, fit, require_partitionable

CHANGE_WITHIN_S = 60.0
# Settings that ask more of a merge than to replace files.
_NOT_MERGED = ("delta.appendOnly", "delta.enableChangeDataFeed")


def prepare(
    location: Location, name: str, given: pa.Schema, partition_by: Sequence[str]
) -> tuple[DeltaTable, Fit]:
    """Return the table, and how a batch of that schema fits it; or SchemaConflict and no change."""
    deadline = time.monotonic() + CHANGE_WITHIN_S
    while True:
        table, fitted = compare(location, name, given, partition_by)
        if table is None:
            _create(location, fitted.schema, partition_by)
        elif fitted.added:
            _add_columns(table, name, fitted.added, deadline)
        else:
            return table, fitted


def compare(
    location: Location, name: str, given: pa.Schema, partition_by: Sequence[str]
) -> tuple[DeltaTable | None, Fit]:
    """Return the table as it is, if there is one, and how a batch would fit it; or
    SchemaConflict."""
    table = open_table(location)
    if table is None:
        fitted = fit(name, None, given)
        require_partitionable(name, fitted.schema, partition_by)
        return None, fitted
    _require_writable(table, name, partition_by)
    fitted = fit(name, schema_of(table), given)
    require_partitionable(name, fitted.schema, table.metadata().partition_columns)
    return table, fitted


def schema_of(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _create(location: Location, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    try:
        DeltaTable.create(
            location.uri,
            Schema.from_arrow(schema),
            mode="error",
            partition_by=list(partition_by),
            storage_options=dict(location.options) or None,
        )
    except DeltaError:
        # Another writer may have been quicker; what it made is looked at next.
        if open_table(location) is None:
            raise


def _add_columns(table: DeltaTable, name: str, added: Sequence[pa.Field], deadline: float) -> None:
    fields = Schema.from_arrow(pa.schema([field.with_nullable(True) for field in added])).fields
    try:
        # Another writer's commit may have brought the column, with another type: look again then.
        table.alter.add_columns(
            list(fields), commit_properties=CommitProperties(max_commit_retries=0)
        )
    except CommitFailedError:
        if time.monotonic() > deadline:
            raise
    else:
        log.info("%s has new columns: %s", name, ", ".join(field.name for field in added))


def _require_writable(table: DeltaTable, name: str, partition_by: Sequence[str]) -> None:
    """Refuse a table with rules that files written past its own writer would break."""
    metadata = table.metadata()
    if partition_by and list(partition_by) != list(metadata.partition_columns):
        raise LakeError(
            f"{name} is partitioned by {list(metadata.partition_columns) or 'nothing'}, not by "
            f"{list(partition_by)}; leave partition_by out, or write to another table"
        )
    settings = metadata.configuration
    rules = [key for key in settings if key.startswith("delta.constraints.")]
    if settings.get("delta.columnMapping.mode", "none") != "none":
        rules.append("delta.columnMapping.mode")
    for field in table.schema().fields:
        rules += [f"{key} of {field.name}" for key in field.metadata if _is_rule(key)]
    if rules:
        raise LakeError(
            f"{name} has rules that this sink cannot follow "
            f"({', '.join(rules)}); write to another table, or drop them"
        )


def require_mergeable(
    table: DeltaTable, name: str, merging: MergeSettings, given: Collection[str] = ()
) -> None:
    """Refuse a table whose files a merge must not rewrite as it does; `given` are the columns of
    the batch."""
    merging.require_history(name, schema_of(table).names, lambda: bool(table.file_uris()), given)
    settings = table.metadata().configuration
    rules = [key for key in _NOT_MERGED if settings.get(key, "").lower() == "true"]
    if "deletionVectors" in (table.protocol().reader_features or ()):
        rules.append("deletion vectors")
    if rules:
        raise LakeError(
            f"{name} has {' and '.join(rules)}, with which this sink cannot merge rows; turn them "
            "off, or write to another table"
        )


def _is_rule(key: str) -> bool:
    return key in ("delta.invariants", "delta.generationExpression") or key.startswith(
        "delta.identity."
    )
