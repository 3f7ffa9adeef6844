"""Reading files of an Iceberg table in tasks: by the ids of fields, and without deleted rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from moldau.spark.lake.files import WritePlan, conformed

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class Reading:
    """What tasks have to know of the table; `properties` may hold credentials."""

    metadata: TableMetadata
    properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, table: Table) -> Reading:
        # History is of no use for it, and can be long.
        brief: dict[str, Any] = {
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
        }
        return cls(table.metadata.model_copy(update=brief), dict(table.io.properties))

    def batches(
        self, task: FileScanTask, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a file, with these columns or all."""
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import ArrowScan

        io = load_file_io(dict(self.properties), self.metadata.location)
        schema = self.metadata.schema()
        if columns is not None:
            schema = schema.select(*columns)
        return ArrowScan(self.metadata, io, schema, AlwaysTrue()).to_record_batches([task])


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A file of the table, with the deletes that other engines have put beside it."""

    task: FileScanTask
    reading: Reading = field(repr=False)

    @property
    def identity(self) -> str:
        deletes = sorted(each.file_path for each in self.task.delete_files)
        return "\n".join([self.task.file.file_path, *deletes])

    @property
    def size(self) -> int:
        return int(self.task.file.file_size_in_bytes)

    def open(self, plan: WritePlan) -> OpenIcebergFile:
        return OpenIcebergFile(self, plan.schema)


class OpenIcebergFile:
    """A file of the table that a task reads, as one group of rows; `schema` is the table's."""

    def __init__(self, file: IcebergFile, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema

    def __enter__(self) -> OpenIcebergFile:
        return self

    def __exit__(self, *_: object) -> None:
        # Each look at the rows opens the file and closes it.
        pass

    @property
    def groups(self) -> range:
        return range(1)

    def rows_before(self, group: int) -> int:
        return 0

    def has(self, columns: Sequence[str]) -> bool:
        return True

    def bounds(self, group: int, name: str) -> None:
        # Those of the file were looked at when it was chosen.
        return None

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        schema = pa.schema([self._schema.field(name) for name in columns])
        found = list(self._read(schema, columns))
        return pa.Table.from_batches(found, schema)

    def batches(self, group: int) -> Iterator[pa.RecordBatch]:
        return self._read(self._schema)

    def _read(
        self, schema: pa.Schema, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        for batch in self._file.reading.batches(self._file.task, columns):
            yield conformed(batch.select(schema.names), schema)
