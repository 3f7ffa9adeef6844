"""Staged rows: those of a batch, in files that are no part of the table, numbered from 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from moldau.spark.lake.files import conformed
from moldau.spark.lake.location import Store
from moldau.spark.lake.order import ALONE, DELETES

# The number of a staged row, and of a row in a file of the table.
INDEX, ROW = "__moldau_index", "__moldau_row_number"
# Columns that are staged beside those of the table.
MARKS = (pa.field(DELETES, pa.bool_()), pa.field(ALONE, pa.bool_()))


def with_marks(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *MARKS])


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of staged rows; `first` is the number of its first row."""

    path: str
    rows: int
    first: int


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of a batch, one of each key; `schema` is what the files have."""

    location: Store
    files: tuple[StagedFile, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, location: Store, schema: pa.Schema, files: Sequence[Any]) -> Staged:
        """Number the rows of files that tasks have written."""
        found, first = [], 0
        for file in files:
            found.append(StagedFile(file.path, file.rows, first))
            first += file.rows
        return cls(location, tuple(found), schema)

    def in_types_of(self, table: pa.Schema) -> Staged:
        """Return the same rows in the types of the table: it may have got wider ones since."""
        known = set(table.names)
        fields = [table.field(each.name) if each.name in known else each for each in self.schema]
        return replace(self, schema=pa.schema(fields))

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return these columns of all rows, and INDEX. Meant for the few that decide."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        parts = [
            pq.read_table(self.location.open(file.path), columns=list(columns))
            .select(list(columns))
            .cast(schema)
            for file in self.files
        ]
        rows = pa.concat_tables(parts) if parts else schema.empty_table()
        return rows.append_column(INDEX, pa.array(np.arange(rows.num_rows, dtype=np.int64)))

    def take(self, indices: np.ndarray[Any, Any]) -> pa.Table:
        """Return the rows of these numbers, which ascend."""
        found = [self.schema.empty_table()]
        for file in self.files:
            low, high = np.searchsorted(indices, [file.first, file.first + file.rows])
            if low == high:
                continue
            for first, batch in self.batches(file):
                low, high = np.searchsorted(indices, [first, first + batch.num_rows])
                if low < high:
                    part = batch.take(pa.array(indices[low:high] - first))
                    found.append(pa.Table.from_batches([part]))
        return pa.concat_tables(found)

    def batches(self, file: StagedFile) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of a file, some at a time, each time with the number of the first."""
        first = file.first
        with pq.ParquetFile(self.location.open(file.path)) as parquet:
            for batch in parquet.iter_batches(batch_size=8192):
                yield first, conformed(batch, self.schema)
                first += batch.num_rows
