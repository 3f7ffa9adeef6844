"""An Iceberg table as the target of a merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression

from moldau.spark.lake.files import FileWritten, WritePlan
from moldau.spark.lake.iceberg.data_files import footer_of
from moldau.spark.lake.iceberg.reading import IcebergFile, Reading
from moldau.spark.lake.merge.staged import Staged
from moldau.spark.lake.merge.target import Changes

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

# The property whose value is the list of deleted keys that counts.
DELETED_KEYS = "moldau.deleted-keys"
# So many keys are looked for one by one, in bounds of files and in their partitions.
FEW_KEYS = 200

# Type checkers do not see how these are made.
_expressions: Any = expressions


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """The table as it was loaded; `plan` says how its files are written."""

    table: Table
    plan: WritePlan

    @property
    def deleted_keys(self) -> int | None:
        return deleted_keys_of(self.table)

    def files(
        self, staged: Staged, written: Sequence[FileWritten], keys: Sequence[str]
    ) -> list[IcebergFile]:
        reading = Reading.of(self.table)
        scan = self.table.scan(row_filter=_key_filter(staged, written, keys))
        return [IcebergFile(task, reading) for task in scan.plan_files()]


def deleted_keys_of(table: Table) -> int | None:
    """Return the list of deleted keys that counts in the table."""
    number = table.properties.get(DELETED_KEYS)
    return None if number is None else int(number)


def removed_by(changes: Changes) -> list[DataFile]:
    """Return the files that these changes take out of the table, as its manifests have them."""
    gone = [file.task.file for file in changes.removed if isinstance(file, IcebergFile)]
    assert len(gone) == len(changes.removed)
    return gone


def properties_of(changes: Changes) -> dict[str, str]:
    """Return the properties of the table that these changes set."""
    number = changes.deleted_keys
    return {} if number is None else {DELETED_KEYS: str(number)}


def _key_filter(
    staged: Staged, written: Sequence[FileWritten], keys: Sequence[str]
) -> BooleanExpression:
    """Return a condition that holds for every row with a key of the batch: files are chosen by it.

    Only for keys whose bounds mean the same to everybody."""
    condition: BooleanExpression = AlwaysTrue()
    is_few = sum(file.rows for file in written) <= FEW_KEYS
    for key in keys:
        kind = staged.schema.field(key).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
            continue
        if is_few:
            values = set(staged.read([key]).column(key).to_pylist())
            condition = And(condition, _expressions.In(key, values))
            continue
        bounds = _bounds(key, written)
        if bounds is not None:
            condition = And(condition, _between(key, *bounds))
    return condition


def _between(key: str, low: Any, high: Any) -> BooleanExpression:
    at_least = _expressions.GreaterThanOrEqual(key, low)
    return And(at_least, _expressions.LessThanOrEqual(key, high))


def _bounds(key: str, written: Sequence[FileWritten]) -> tuple[Any, Any] | None:
    lows, highs = [], []
    for file in written:
        footer = footer_of(file)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if column.path_in_schema == key:
                    found = column.statistics
                    if found is None or not found.has_min_max:
                        return None
                    lows.append(found.min)
                    highs.append(found.max)
    return (min(lows), max(highs)) if lows else None
