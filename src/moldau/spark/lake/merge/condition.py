"""The condition of a merge: SQL over `source` and `target`, two rows with the same keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from moldau.spark.lake.merge.staged import INDEX
from moldau.spark.lake.merge.target import TableFile
from moldau.spark.lake.merge.upsert import Indices, MergePlan, pairs
from moldau.spark.lake.tasks import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Columns = tuple[pa.Schema, pa.Schema]


def held_back(
    spark: SparkSession, condition: str, plan: MergePlan, groups: Sequence[Sequence[TableFile]]
) -> Indices:
    """Return the staged rows that do not fulfil the condition with their row of the table."""
    columns = _mentioned(plan.staged.schema, condition), _mentioned(plan.write.schema, condition)
    frame = spark.range(0, len(groups), 1, len(groups))
    schema = _spark_schema(columns)
    found = map_in_arrow(frame, partial(_pairs, plan, groups, columns), schema)
    rows = found.where(f"NOT coalesce({condition}, false)").select(INDEX).collect()
    return np.array(sorted(row[0] for row in rows), dtype=np.int64)


def _mentioned(schema: pa.Schema, condition: str) -> pa.Schema:
    """Return the columns whose names occur in the condition: more does no harm."""
    words = {word.lower() for word in re.findall(r"\w+", condition)}
    named = [each for each in schema if set(re.findall(r"\w+", each.name.lower())) <= words]
    # A struct has to have something.
    return pa.schema(named or [schema.field(0)])


def _spark_schema(columns: Columns) -> str:
    from pyspark.sql.pandas.types import from_arrow_schema

    source, target = (from_arrow_schema(each).simpleString() for each in columns)
    return f"`{INDEX}` bigint, `source` {source}, `target` {target}"


def _pairs(
    plan: MergePlan,
    groups: Sequence[Sequence[TableFile]],
    columns: Columns,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    source = plan.source()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for file in groups[number]:
                yield from pairs(plan, source, file, columns)
