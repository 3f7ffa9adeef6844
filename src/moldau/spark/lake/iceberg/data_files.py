"""Data files: what a table's manifests say of files that tasks have written."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from moldau.spark.lake.files import FileWritten
from moldau.spark.lake.iceberg.store import TableStore

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


def data_files(table: Table, store: TableStore, files: Iterable[FileWritten]) -> list[DataFile]:
    """Return the entries of these files, with the bounds that their footers have."""
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema, spec = table.schema(), table.spec()
    columns = compute_statistics_plan(schema, table.properties)
    ids = parquet_path_to_id_mapping(schema)
    found = []
    for file in files:
        statistics = data_file_statistics_from_parquet_metadata(footer_of(file), columns, ids)
        found.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=store.path(file.path),
                file_format=FileFormat.PARQUET,
                partition=Record(*_partition(table, file)),
                file_size_in_bytes=file.size,
                sort_order_id=None,
                spec_id=spec.spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )
    return found


def footer_of(file: FileWritten) -> Any:
    return pq.read_metadata(pa.BufferReader(base64.b64decode(file.footer)))


def _partition(table: Table, file: FileWritten) -> list[Any]:
    from pyiceberg.types import DecimalType

    values = json.loads(file.transformed)
    kinds = [table.schema().find_type(field.source_id) for field in table.spec().fields]
    # JSON has no exact fractions, so decimals come as text.
    return [
        Decimal(value) if isinstance(kind, DecimalType) and value is not None else value
        for kind, value in zip(kinds, values, strict=True)
    ]
