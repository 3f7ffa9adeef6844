"""Schemas of Iceberg tables: theirs as Arrow's, with and without the ids of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.iceberg.transforms import Transform

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

# The first id of a partition field, by Iceberg's rule.
FIRST_PARTITION_ID = 1000


def storable(schema: pa.Schema) -> pa.Schema:
    """Return a batch's schema in types that Iceberg has: its smallest number has 32 bits."""
    return pa.schema([field.with_type(_storable(field.type)) for field in schema])


def arrow_of(schema: Schema) -> pa.Schema:
    """Return a table's schema with the ids of its fields, by which files are read."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return pa.schema([_usual(field) for field in schema_to_pyarrow(schema)])


def table_schema(schema: pa.Schema) -> Schema:
    """Return the schema for a new table, with ids."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    ids = count(1)
    return pyarrow_to_schema(pa.schema([_identified(field, ids) for field in schema]))


def spec_of(schema: Schema, transforms: Sequence[Transform]) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import parse_transform

    fields = []
    for number, each in enumerate(transforms):
        text = f"{each.kind}[{each.width}]" if each.width else each.kind
        fields.append(
            PartitionField(
                source_id=schema.find_field(each.column).field_id,
                field_id=FIRST_PARTITION_ID + number,
                transform=parse_transform(text),
                name=each.name,
            )
        )
    return PartitionSpec(*fields)


def transforms_of(name: str, table: Table) -> tuple[Transform, ...]:
    """Return the table's own partitioning; LakeError if it is one that tasks cannot compute."""
    found = []
    for field in table.spec().fields:
        kind, _, rest = str(field.transform).partition("[")
        column = table.schema().find_column_name(field.source_id) or ""
        known = ("identity", "year", "month", "day", "hour", "bucket", "truncate")
        if kind not in known or "." in column:
            raise LakeError(
                f"{name} is partitioned by {field.transform}({column}), which this sink cannot "
                "compute; write to another table"
            )
        found.append(Transform(kind, column, int(rest.rstrip("]") or 0), field.name))
    return tuple(found)


def _storable(kind: pa.DataType) -> pa.DataType:
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_storable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_storable(kind.key_type), _storable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_storable(field.type)) for field in kind])
    return kind


def _usual(field: pa.Field) -> pa.Field:
    """Return a field without the large types, which Spark does not send."""
    kind = field.type
    if pa.types.is_large_string(kind):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(kind):
        return field.with_type(pa.binary())
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return field.with_type(pa.list_(_usual(kind.value_field)))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_usual(kind.key_field), _usual(kind.item_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_usual(each) for each in kind]))
    return field


def _identified(field: pa.Field, ids: Iterator[int]) -> pa.Field:
    kind = field.type
    field = field.with_metadata({b"PARQUET:field_id": str(next(ids)).encode()})
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_identified(kind.value_field, ids)))
    if pa.types.is_map(kind):
        key, value = _identified(kind.key_field, ids), _identified(kind.item_field, ids)
        return field.with_type(pa.map_(key, value))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_identified(each, ids) for each in kind]))
    return field
