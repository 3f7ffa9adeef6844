"""Tasks that run a function over the Arrow batches of a DataFrame."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

W = TypeVar("W")
R = TypeVar("R")
ArrowMap = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def map_in_arrow(frame: DataFrame, function: ArrowMap, schema: str) -> DataFrame:
    """`frame.mapInArrow(function, schema)`, on machines without pandas too.

    PySpark asks for pandas before it makes any such function, though Arrow alone is used.
    """
    from pyspark.sql import DataFrame as Frame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(
        function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column: Any = udf(*[frame[f"`{name.replace('`', '``')}`"] for name in frame.columns])
    mapped: Any = frame
    return Frame(mapped._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def run_tasks(spark: SparkSession, task: Callable[[W], R], work: Sequence[W]) -> list[R]:
    """Do each piece of the work in a task of its own; both come and go pickled."""
    if not work:
        return []
    frame = spark.range(0, len(work), 1, len(work))
    done = map_in_arrow(frame, partial(_run, task, work), "done binary").collect()
    return [pickle.loads(row["done"]) for row in done]


def _run(
    task: Callable[[W], R], work: Sequence[W], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        done = [pickle.dumps(task(work[number])) for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pydict({"done": pa.array(done, pa.binary())})
