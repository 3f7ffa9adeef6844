"""Reading files of an Iceberg table in tasks: by the ids of fields, and without deleted rows.

Parquet files are read a row group at a time. Those that other engines have put deletes beside are
left to pyiceberg, which reads a whole file at once; so are those of another format, and those that
lack a column because their partition has its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform

from moldau.spark.lake.files import WritePlan, conformed
from moldau.spark.lake.iceberg.parquet_file import OpenParquetFile
from moldau.spark.lake.iceberg.projection import use_in_scans

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

    def open(self, task: FileScanTask, schema: pa.Schema) -> OpenParquetFile | OpenWholeFile:
        """Open a file of the table; `schema` is the table's, in types of Arrow."""
        if task.delete_files or task.file.file_format != FileFormat.PARQUET:
            return OpenWholeFile(self, task, schema)
        source = self.io().new_input(task.file.file_path).open()
        try:
            opened = OpenParquetFile(source, self.metadata, schema)
        except Exception:
            source.close()
            raise
        if opened.missing & self._in_folders(task):
            opened.close()
            return OpenWholeFile(self, task, schema)
        return opened

    def batches(self, task: FileScanTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, some at a time."""
        with self.open(task, schema) as opened:
            for group in opened.groups:
                yield from opened.batches(group)

    def io(self) -> FileIO:
        return load_file_io(dict(self.properties), self.metadata.location)

    def _in_folders(self, task: FileScanTask) -> set[int]:
        """Return the fields whose values are those of the file's partition."""
        fields = self.metadata.specs()[task.file.spec_id].fields
        return {each.source_id for each in fields if isinstance(each.transform, IdentityTransform)}


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

    def open(self, plan: WritePlan) -> OpenParquetFile | OpenWholeFile:
        return self.reading.open(self.task, plan.schema)


class OpenWholeFile:
    """A file of the table that a task reads, as one group of rows; `schema` is the table's."""

    def __init__(self, reading: Reading, task: FileScanTask, schema: pa.Schema) -> None:
        self._reading = reading
        self._task = task
        self._schema = schema

    def __enter__(self) -> OpenWholeFile:
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
        return pa.Table.from_batches(self._read(schema), schema)

    def batches(self, group: int) -> Iterator[pa.RecordBatch]:
        return self._read(self._schema)

    def _read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        metadata, io = self._reading.metadata, self._reading.io()
        wanted = metadata.schema().select(*schema.names)
        use_in_scans()
        scan = ArrowScan(metadata, io, wanted, AlwaysTrue())
        for batch in scan.to_record_batches([self._task]):
            yield conformed(batch.select(schema.names), schema)
