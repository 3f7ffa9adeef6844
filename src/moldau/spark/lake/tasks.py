"""Running a function over the Arrow batches of a DataFrame, in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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
