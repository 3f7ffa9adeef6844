"""Files of a Delta table as a merge reads them: a row group at a time, in the table's own types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from moldau.spark.lake.files import WritePlan, partition_text
from moldau.spark.lake.row_groups import bounds_in, rows_at_once


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A file of the table: its path in the folder, and the values that the folder stands for."""

    path: str
    size: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        # Files never change, and tables with deletion vectors are refused.
        return self.path

    def open(self, plan: WritePlan) -> OpenDeltaFile:
        return OpenDeltaFile(plan.location.open(self.path), self.values, plan.schema)

    def remove_action(self, now_ms: int) -> RemoveAction:
        values = {name: partition_text(value) for name, value in self.values.items()}
        return RemoveAction(self.path, True, now_ms, self.size, values)


def files_of(table: DeltaTable, ranges: Mapping[str, tuple[Any, Any]]) -> list[DeltaFile]:
    """Return the files that may have rows within these ranges, as far as the log tells."""
    actions = pa.table(table.get_add_actions(flatten=True))
    for name, (low, high) in ranges.items():
        for label, compare, bound in (
            (f"min.{name}", pc.less_equal, high),
            (f"max.{name}", pc.greater_equal, low),
            (f"partition.{name}", pc.less_equal, high),
            (f"partition.{name}", pc.greater_equal, low),
        ):
            actions = _kept(actions, label, compare, bound)
    names = table.metadata().partition_columns
    return [
        DeltaFile(
            # The log's paths are those of URLs.
            unquote(row["path"]),
            row["size_bytes"],
            {name: row[f"partition.{name}"] for name in names},
        )
        for row in actions.to_pylist()
    ]


def _kept(actions: pa.Table, label: str, compare: Any, bound: Any) -> pa.Table:
    """Return the files of which nobody can say that they have no such value."""
    if label not in actions.column_names:
        return actions
    column = actions.column(label)
    # Bounds leave out what is no number.
    if pa.types.is_floating(column.type):
        return actions
    try:
        value = pa.scalar(bound).cast(column.type)
    except pa.ArrowException:
        return actions
    return actions.filter(pc.fill_null(compare(column, value), True))


class OpenDeltaFile:
    """A file of the table that a task reads; `schema` is the table's."""

    def __init__(self, source: Any, values: Mapping[str, Any], schema: pa.Schema) -> None:
        self._parquet = pq.ParquetFile(source)
        self._values = values
        self._schema = schema
        self._stored = set(self._parquet.schema_arrow.names)

    def __enter__(self) -> OpenDeltaFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._parquet.close()

    @property
    def groups(self) -> range:
        return range(self._parquet.metadata.num_row_groups)

    def rows_before(self, group: int) -> int:
        return sum(map(self._rows_in, range(group)))

    def has(self, columns: Sequence[str]) -> bool:
        return all(name in self._stored or name in self._values for name in columns)

    def bounds(self, group: int, name: str) -> tuple[pa.Scalar, pa.Scalar] | None:
        kind = self._schema.field(name).type
        if name in self._values:
            value = pa.scalar(self._values[name], kind)
            return value, value
        return bounds_in(self._parquet.metadata.row_group(group), name, kind)

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        names = [name for name in columns if name in self._stored]
        rows = self._parquet.read_row_group(group, columns=names)
        length = self._rows_in(group)
        schema = pa.schema([self._schema.field(name) for name in columns])
        found = [self._column(rows, each, length) for each in schema]
        return pa.Table.from_arrays(found, schema=schema)

    def batches(self, group: int) -> Iterator[pa.RecordBatch]:
        names = [name for name in self._schema.names if name in self._stored]
        size = rows_at_once(self._parquet.metadata.row_group(group))
        for batch in self._parquet.iter_batches(size, row_groups=[group], columns=names):
            arrays = [self._column(batch, each, batch.num_rows) for each in self._schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _rows_in(self, group: int) -> int:
        return int(self._parquet.metadata.row_group(group).num_rows)

    def _column(self, rows: Any, wanted: pa.Field, length: int) -> Any:
        if wanted.name in self._values:
            return pa.repeat(pa.scalar(self._values[wanted.name], wanted.type), length)
        if wanted.name not in self._stored:
            return pa.nulls(length, wanted.type)
        column = rows.column(wanted.name)
        return column if column.type == wanted.type else column.cast(wanted.type)
