"""Schemas: whether a batch fits a table, Spark's types as Arrow's, and the columns to add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from moldau.spark.lake.errors import SchemaConflict

if TYPE_CHECKING:
    from pyspark.sql import types as spark

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")
# Other engines refuse them in tables without column mapping.
FORBIDDEN = set(" ,;{}()\n\t=")
_SIMPLE = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "string": pa.string(),
    "timestamp": UTC_MICROSECONDS,
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_WIDER = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(),),
    pa.float32(): (pa.float64(),),
}


@dataclass(frozen=True, slots=True)
class Fit:
    """The mapping from the columns of a batch to those of a table.

    `columns` pairs names, the batch's and the table's, in the table's order; `schema` is theirs in
    the table; `added` are columns that the table lacks, or has without some nested field.
    """

    columns: tuple[tuple[str, str], ...]
    schema: pa.Schema
    added: tuple[pa.Field, ...] = ()


def fit(table: str, have: pa.Schema | None, batch: pa.Schema, *, widens: bool = False) -> Fit:
    """Return how the batch goes into the table, or into a new one where there is none; or
    SchemaConflict.

    A column that the batch lacks is null; one that the table lacks is added, as is a new field of a
    struct. A narrower number is widened. Everything else has to be of the same type; but with
    `widens`, the table's own number grows to hold a wider one of the batch.
    """
    given: dict[str, pa.Field] = {}
    for field in batch:
        twin = given.get(field.name.lower())
        if twin is not None:
            raise SchemaConflict(
                table,
                field.name,
                f"appears twice, as {twin.name!r} and {field.name!r}",
                "rename or drop one: column names must differ by more than case",
            )
        given[field.name.lower()] = field
    pairs, fields, added = [], [], []
    for column in have or ():
        match = given.pop(column.name.lower(), None)
        if match is None:
            if not column.nullable:
                raise SchemaConflict(
                    table,
                    column.name,
                    f"({column.type}, not null) is missing in the batch",
                    "select it, or make the table's column nullable",
                )
            continue
        merged = column.with_type(_merged(table, column.name, column.type, match.type, widens))
        if merged.type != column.type:
            added.append(merged)
        pairs.append((match.name, column.name))
        fields.append(merged)
    for field in given.values():
        _require_storable(table, field.name, field.type)
        pairs.append((field.name, field.name))
        fields.append(field)
        added.append(field)
    return Fit(tuple(pairs), pa.schema(fields), tuple(added))


def arrow_schema(table: str, schema: spark.StructType) -> pa.Schema:
    """Return the schema of a DataFrame as a table keeps it: everything nullable, times in UTC."""
    return pa.schema(
        [pa.field(item.name, _arrow_type(table, item.name, item.dataType)) for item in schema]
    )


def _arrow_type(table: str, column: str, kind: spark.DataType) -> pa.DataType:
    from pyspark.sql import types

    if isinstance(kind, types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, types.ArrayType):
        return _list_of(_arrow_type(table, f"{column}.element", kind.elementType))
    if isinstance(kind, types.MapType):
        key = _arrow_type(table, f"{column}.key", kind.keyType)
        return pa.map_(key, _arrow_type(table, f"{column}.value", kind.valueType))
    if isinstance(kind, types.StructType):
        return pa.struct(
            [
                pa.field(item.name, _arrow_type(table, f"{column}.{item.name}", item.dataType))
                for item in kind
            ]
        )
    if isinstance(kind, types.StringType | types.VarcharType | types.CharType):
        return pa.string()
    known = _SIMPLE.get(kind.typeName())
    if known is None:
        raise SchemaConflict(
            table, column, f"is {kind.simpleString()}, which a lake table cannot hold", "cast it"
        )
    return known


def _merged(
    table: str, column: str, have: pa.DataType, given: pa.DataType, widens: bool
) -> pa.DataType:
    """Return the type in the table that holds both what it has and what is given."""
    if pa.types.is_null(given) or _is_widened(given, have):
        return have
    if widens and _is_promoted(have, given):
        return given
    if pa.types.is_struct(have) and pa.types.is_struct(given):
        return _merged_struct(table, column, have, given, widens)
    if pa.types.is_list(have) and pa.types.is_list(given):
        name = f"{column}.element"
        merged = _merged(table, name, have.value_type, given.value_type, widens)
        return have if merged == have.value_type else _list_of(merged)
    if pa.types.is_map(have) and pa.types.is_map(given):
        # Keys of maps are as they were: a table that evolves may not touch them.
        key = _merged(table, f"{column}.key", have.key_type, given.key_type, False)
        value = _merged(table, f"{column}.value", have.item_type, given.item_type, widens)
        return have if (key, value) == (have.key_type, have.item_type) else pa.map_(key, value)
    if not widens and _is_promoted(have, given):
        raise SchemaConflict(
            table,
            column,
            f"is {have} in the table and {given} in the batch",
            "a Delta table cannot be widened where it is: stop what writes to it and rewrite it "
            f"with {column} as {given} (docs/lake.md#wider-numbers), or cast it in the query, or "
            "give it another name",
        )
    if have != given:
        raise SchemaConflict(
            table,
            column,
            f"is {have} in the table and {given} in the batch",
            "cast it in the query, give it another name, or write to another table",
        )
    return have


def _merged_struct(
    table: str, column: str, have: pa.StructType, given: pa.StructType, widens: bool
) -> pa.StructType:
    known = {field.name.lower(): field for field in have}
    fields = {field.name: field for field in have}
    for field in given:
        name = f"{column}.{field.name}"
        mine = known.get(field.name.lower())
        if mine is None:
            _require_storable(table, name, field.type)
            fields[field.name] = field
        elif mine.name != field.name:
            raise SchemaConflict(
                table,
                name,
                f"is {mine.name!r} in the table",
                "rename it: field names must differ by more than case",
            )
        else:
            fields[field.name] = mine.with_type(_merged(table, name, mine.type, field.type, widens))
    merged = pa.struct(list(fields.values()))
    return have if merged == have else merged


def _is_widened(given: pa.DataType, have: pa.DataType) -> bool:
    if given == have:
        return True
    if pa.types.is_decimal(given) and pa.types.is_decimal(have):
        whole = have.precision - have.scale >= given.precision - given.scale
        return bool(whole and have.scale >= given.scale)
    return have in _WIDER.get(given, ())


def _is_promoted(have: pa.DataType, given: pa.DataType) -> bool:
    """Return whether files with the narrower type can be read as the wider: a decimal's scale, for
    one, is in them."""
    if pa.types.is_decimal(have) and pa.types.is_decimal(given):
        return bool(given.scale == have.scale and given.precision > have.precision)
    return given in _WIDER.get(have, ())


def _require_storable(table: str, column: str, kind: pa.DataType) -> None:
    """A new column needs a type, here and inside."""
    name = column.rpartition(".")[2]
    if not name or FORBIDDEN & set(name):
        raise SchemaConflict(
            table,
            column,
            "has a character in its name that lake tables do not allow (one "
            "of ' ,;{}()=', a tab, a line break), or no name",
            "rename it with alias",
        )
    if pa.types.is_null(kind):
        raise SchemaConflict(
            table, column, "is always null and has no type", "cast it to the type that it will have"
        )
    if pa.types.is_map(kind):
        _require_storable(table, f"{column}.key", kind.key_type)
        _require_storable(table, f"{column}.value", kind.item_type)
    elif pa.types.is_list(kind):
        _require_storable(table, f"{column}.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            _require_storable(table, f"{column}.{field.name}", field.type)


def require_partitionable(table: str, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Columns that name a folder have to be plain values that are written in one way only."""
    for name in partition_by:
        if name not in schema.names:
            raise SchemaConflict(table, name, "is in partition_by, but does not exist", "select it")
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_floating(kind):
            raise SchemaConflict(
                table, name, f"is {kind}, which cannot partition a table", "choose another column"
            )
    if schema.names and set(schema.names) <= set(partition_by):
        raise SchemaConflict(
            table,
            schema.names[0],
            "and all other columns partition the table",
            "leave at least one column out of partition_by",
        )


def _list_of(kind: pa.DataType) -> pa.ListType:
    return pa.list_(pa.field("element", kind))
