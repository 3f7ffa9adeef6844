"""Evolution of an Iceberg table: created for the first batch, then with new and wider columns.

These are transactions of their own, before the batch's: a crash in between leaves columns of nulls.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from moldau.spark.errors import log
from moldau.spark.lake.errors import LakeError, SchemaConflict
from moldau.spark.lake.iceberg.catalog import CatalogTable
from moldau.spark.lake.iceberg.schema import arrow_of, spec_of, table_schema, transforms_of
from moldau.spark.lake.iceberg.transforms import Transform
from moldau.spark.lake.schema import Fit, fit

if TYPE_CHECKING:
    from pyiceberg.table import Table

CHANGE_WITHIN_S = 60.0


def prepare(
    target: CatalogTable, given: pa.Schema, partition_by: Sequence[Transform]
) -> tuple[Table, Fit]:
    """Return the table, and how a batch of that schema fits it; or SchemaConflict and no change."""
    deadline = time.monotonic() + CHANGE_WITHIN_S
    while True:
        table, fitted = compare(target, given, partition_by)
        if table is None:
            schema = table_schema(fitted.schema)
            target.create(schema, spec_of(schema, partition_by))
        elif fitted.added:
            _evolve(target.name, table, fitted.added, deadline)
        else:
            return table, fitted


def compare(
    target: CatalogTable, given: pa.Schema, partition_by: Sequence[Transform]
) -> tuple[Table | None, Fit]:
    """Return the table as it is, if there is one, and how a batch would fit it; or
    SchemaConflict."""
    table = target.open()
    if table is None:
        fitted = fit(target.name, None, given)
        for each in partition_by:
            each.require(target.name, fitted.schema)
        return None, fitted
    have = transforms_of(target.name, table)
    if partition_by and have != tuple(partition_by):
        raise LakeError(
            f"{target.name} is partitioned by {', '.join(map(str, have)) or 'nothing'}, not by "
            f"{', '.join(map(str, partition_by))}; leave partition_by out, or write to another "
            "table"
        )
    fitted = fit(target.name, arrow_of(table.schema()), given, widens=True)
    given_names = {name for _, name in fitted.columns}
    for each in have:
        if each.column not in given_names:
            raise SchemaConflict(
                target.name,
                each.column,
                "partitions the table, but is not in the batch",
                "select it",
            )
    return table, fitted


def _evolve(name: str, table: Table, changed: Sequence[pa.Field], deadline: float) -> None:
    from pyiceberg.exceptions import CommitFailedException

    known = set(table.schema().column_names)
    try:
        with table.update_schema() as update:
            update.union_by_name(pa.schema([_plain(field) for field in changed]))
    except CommitFailedException:
        # Another writer has changed the schema, perhaps in the same way: look again.
        if time.monotonic() > deadline:
            raise
    else:
        added = ", ".join(field.name for field in changed if field.name not in known)
        wider = ", ".join(field.name for field in changed if field.name in known)
        if added:
            log.info("%s has new columns: %s", name, added)
        if wider:
            log.info("%s has columns of new types: %s", name, wider)


def _plain(field: pa.Field) -> pa.Field:
    """Return a field without ids at any depth: those of the given schema mean nothing here."""
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_plain(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_plain(kind.key_field), _plain(kind.item_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_plain(each) for each in kind])
    return pa.field(field.name, kind, field.nullable)
