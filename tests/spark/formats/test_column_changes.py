"""Changes between the columns of two versions."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from moldau.spark.formats.column_changes import column_changes

INT, LONG, STRING, FLOAT, DOUBLE = (
    *(IntegerType(), LongType(), StringType()),
    *(FloatType(), DoubleType()),
)


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (columns(a=INT), columns(a=INT), ""),
        (columns(a=INT), columns(a=INT, b=STRING), "new: b (string)"),
        (columns(a=INT), columns(a=LONG), "wider: a (bigint, was int)"),
        (columns(a=FLOAT), columns(a=DOUBLE), "wider: a (double, was float)"),
        (
            columns(d=DecimalType(4, 1)),
            columns(d=DecimalType(9, 2)),
            "wider: d (decimal(9,2), was decimal(4,1))",
        ),
        (columns(a=LONG), columns(a=DOUBLE), "of another type: a (double, was bigint)"),
        (columns(a=LONG), columns(a=INT), "of another type: a (int, was bigint)"),
        (columns(a=INT), columns(a=STRING), "of another type: a (string, was int)"),
        (columns(a=INT, b=INT), columns(b=INT), "gone: a (int)"),
        (
            columns(p=columns(x=INT)),
            columns(p=columns(x=LONG, y=INT)),
            "new: p.y (int); wider: p.x (bigint, was int)",
        ),
        (
            columns(p=ArrayType(columns(x=INT))),
            columns(p=ArrayType(columns(y=INT))),
            "new: p[].y (int); gone: p[].x (int)",
        ),
        (
            columns(m=MapType(STRING, INT)),
            columns(m=MapType(STRING, STRING)),
            "of another type: m{} (string, was int)",
        ),
    ],
)
def test_changes_are_told_by_path_and_type(
    before: StructType, after: StructType, said: str
) -> None:
    found = column_changes(before, after)
    assert str(found) == said
    assert bool(found) == bool(said)


def test_what_the_running_type_holds_is_no_loss_and_what_it_does_not_is() -> None:
    found = column_changes(columns(a=LONG, b=INT), columns(a=INT, b=STRING))
    assert found.narrowed == ["a (int, was bigint)"]
    assert found.changed == ["b (string, was int)"]
