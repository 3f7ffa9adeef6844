"""Schemas of Arrow: whether a batch fits a table."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types

from moldau.spark.lake import SchemaConflict
from moldau.spark.lake.schema import arrow_schema, fit, require_partitionable

INNER = pa.struct([pa.field("x", pa.int64())])


def listed(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


def test_columns_are_matched_by_name_in_any_case_and_order() -> None:
    table = pa.schema([("id", pa.int64()), ("name", pa.string())])
    fitted = fit("t", table, pa.schema([("NAME", pa.string()), ("id", pa.int64())]))
    assert fitted.columns == (("id", "id"), ("NAME", "name"))
    assert fitted.schema == table
    assert fitted.added == ()


def test_a_column_that_the_batch_lacks_is_left_to_be_null() -> None:
    table = pa.schema([("id", pa.int64()), ("name", pa.string())])
    assert fit("t", table, pa.schema([("id", pa.int64())])).schema.names == ["id"]
    strict = pa.schema([("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])
    with pytest.raises(SchemaConflict, match=r"'name' .*is missing in the batch"):
        fit("t", strict, pa.schema([("id", pa.int64())]))


def test_new_columns_and_new_fields_inside_are_added() -> None:
    wider = pa.struct([*INNER, pa.field("y", pa.string())])
    table = pa.schema(
        [("s", INNER), ("l", listed(INNER)), ("m", pa.map_(pa.string(), INNER)), ("same", INNER)]
    )
    batch = pa.schema(
        [
            ("s", wider),
            ("l", listed(wider)),
            ("m", pa.map_(pa.string(), wider)),
            ("same", INNER),
            ("new", pa.date32()),
        ]
    )
    fitted = fit("t", table, batch)
    assert [field.name for field in fitted.added] == ["s", "l", "m", "new"]
    assert fitted.schema == batch


@pytest.mark.parametrize(
    ("have", "given"),
    [
        (pa.int64(), pa.int8()),
        (pa.int32(), pa.int16()),
        (pa.float64(), pa.float32()),
        (pa.decimal128(12, 4), pa.decimal128(10, 2)),
        (pa.string(), pa.null()),
        (listed(pa.int64()), listed(pa.int32())),
        (pa.struct([*INNER, pa.field("y", pa.string())]), INNER),
    ],
)
def test_what_the_table_has_room_for_fits(have: pa.DataType, given: pa.DataType) -> None:
    fitted = fit("t", pa.schema([("c", have)]), pa.schema([("c", given)]))
    assert fitted.schema.field("c").type == have
    assert fitted.added == ()


@pytest.mark.parametrize(
    ("have", "given"),
    [
        (pa.int32(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 4), pa.decimal128(10, 2)),
        (pa.timestamp("us", tz="UTC"), pa.timestamp("us")),
        (INNER, pa.int64()),
        (listed(pa.int64()), listed(pa.string())),
    ],
)
def test_any_other_change_is_a_conflict_that_names_both_types(
    have: pa.DataType, given: pa.DataType
) -> None:
    with pytest.raises(
        SchemaConflict, match=r"lake/t: column 'c.*in the table and .* in the batch"
    ):
        fit("lake/t", pa.schema([("c", have)]), pa.schema([("c", given)]))


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (pa.schema([("a", pa.int8()), ("A", pa.int8())]), "appears twice"),
        (pa.schema([("a b", pa.int8())]), "character in its name"),
        (pa.schema([("a", pa.null())]), "has no type"),
        (pa.schema([("a", listed(pa.null()))]), "'a.element' is always null"),
    ],
)
def test_what_no_table_can_hold_is_refused(batch: pa.Schema, problem: str) -> None:
    with pytest.raises(SchemaConflict, match=problem):
        fit("t", None, batch)


def test_spark_s_types_become_arrow_s() -> None:
    inner = types.StructType().add("x", types.LongType())
    kinds = {
        "b": types.BinaryType(),
        "d": types.DateType(),
        "t": types.TimestampType(),
        "n": types.TimestampNTZType(),
        "e": types.DecimalType(10, 3),
        "a": types.ArrayType(types.IntegerType()),
        "m": types.MapType(types.StringType(), inner),
        "s": types.VarcharType(3),
        "o": types.BooleanType(),
        "f": types.FloatType(),
        "i": types.ByteType(),
    }
    schema = types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])
    assert arrow_schema("t", schema) == pa.schema(
        [
            ("b", pa.binary()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", tz="UTC")),
            ("n", pa.timestamp("us")),
            ("e", pa.decimal128(10, 3)),
            ("a", listed(pa.int32())),
            ("m", pa.map_(pa.string(), INNER)),
            ("s", pa.string()),
            ("o", pa.bool_()),
            ("f", pa.float32()),
            ("i", pa.int8()),
        ]
    )
    with pytest.raises(SchemaConflict, match=r"'i' is interval.*cannot hold; cast it"):
        arrow_schema("t", types.StructType().add("i", types.DayTimeIntervalType()))


def test_only_plain_values_partition_a_table() -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("f", pa.float64())])
    require_partitionable("t", schema, ["day"])
    for names, problem in (
        (["f"], "cannot partition"),
        (["missing"], "does not exist"),
        (["id", "day", "f"], "cannot partition"),
    ):
        with pytest.raises(SchemaConflict, match=problem):
            require_partitionable("t", schema, names)
