"""A Parquet file of an Iceberg table, read a row group at a time and in the table's schema.

A scan of pyiceberg decodes the whole file before it returns the first row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import ArrowAccessor, pyarrow_to_schema
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.table.metadata import TableMetadata

from moldau.spark.lake.files import conformed
from moldau.spark.lake.iceberg.projection import Projection
from moldau.spark.lake.row_groups import bounds_in, rows_at_once


class OpenParquetFile:
    """A file without deletes that a task reads; `schema` is the table's, in types of Arrow."""

    def __init__(self, source: Any, metadata: TableMetadata, schema: pa.Schema) -> None:
        self._source = source
        # What is needed of a row group comes in few requests.
        self._parquet = pq.ParquetFile(source, pre_buffer=True)
        self._schema = schema
        self._table = metadata.schema()
        # Tables of these formats have no nanoseconds.
        self._is_micros = metadata.format_version <= 2
        self._stored = pyarrow_to_schema(
            self._parquet.schema_arrow,
            metadata.name_mapping(),
            downcast_ns_timestamp_to_us=self._is_micros,
            format_version=metadata.format_version,
        )

    def __enter__(self) -> OpenParquetFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._parquet.close()
        self._source.close()

    @property
    def missing(self) -> set[int]:
        """The ids of the table's fields that the file does not have."""
        return set(self._table.field_ids) - set(self._stored.field_ids)

    @property
    def groups(self) -> range:
        return range(self._parquet.metadata.num_row_groups)

    def rows_before(self, group: int) -> int:
        return sum(self._group(each).num_rows for each in range(group))

    def has(self, columns: Sequence[str]) -> bool:
        # Those that the file lacks are made up, and need not be null.
        return True

    def bounds(self, group: int, name: str) -> tuple[pa.Scalar, pa.Scalar] | None:
        path = self._stored.find_column_name(self._table.find_field(name).field_id)
        if path is None:
            return None
        return bounds_in(self._group(group), path, self._schema.field(name).type)

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        schema = pa.schema([self._schema.field(name) for name in columns])
        return pa.Table.from_batches(self._read(group, schema), schema)

    def batches(self, group: int) -> Iterator[pa.RecordBatch]:
        return self._read(group, self._schema)

    def _group(self, number: int) -> Any:
        return self._parquet.metadata.row_group(number)

    def _read(self, group: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        wanted = self._table.select(*schema.names)
        known = set(self._stored.field_ids)
        ids = [self._table.find_field(name).field_id for name in schema.names]
        names = [self._stored.find_field(each).name for each in ids if each in known]
        is_plain = self._is_stored_as(schema)
        size = rows_at_once(self._group(group))
        for batch in self._parquet.iter_batches(size, row_groups=[group], columns=names):
            rows = batch if is_plain else self._projected(batch, wanted)
            yield conformed(rows.select(names if is_plain else schema.names), schema)

    def _is_stored_as(self, schema: pa.Schema) -> bool:
        """Return whether the file has these columns as the table has them, but for their names."""
        known = set(self._stored.field_ids)
        for column in schema:
            wanted = self._table.find_field(column.name)
            if wanted.field_id not in known:
                return False
            stored = self._stored.find_field(wanted.field_id)
            kind = self._parquet.schema_arrow.field(stored.name).type
            if stored.field_type != wanted.field_type or kind != column.type:
                return False
        return True

    def _projected(self, batch: pa.RecordBatch, wanted: Schema) -> pa.RecordBatch:
        projection = Projection(
            self._stored,
            downcast_ns_timestamp_to_us=self._is_micros,
            allow_timestamp_tz_mismatch=True,
        )
        rows = visit_with_partner(wanted, batch, projection, ArrowAccessor(self._stored))
        return pa.RecordBatch.from_struct_array(rows)
