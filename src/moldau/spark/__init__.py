"""Spark: topics as tables and streams.

    from moldau.spark import session

    spark = session()
    spark.read.format("moldau").option("subscribe", "orders") ...

The source is there in any SparkSession whose workers have this package: `pyspark_moldau` registers
it. Nothing here imports pyspark before it is needed, so the error for want of it can be clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.spark.errors import DataLoss, OptionError, ReadStalled, WriteFailed
from moldau.spark.runtime.session import SparkFailed, SparkMissing, session

if TYPE_CHECKING:
    from moldau.spark.pipeline import Pipeline, PipelineError

__all__ = [
    "DataLoss",
    "OptionError",
    "Pipeline",
    "PipelineError",
    "ReadStalled",
    "SparkFailed",
    "SparkMissing",
    "WriteFailed",
    "session",
]


def __getattr__(name: str) -> Any:
    # Every worker of Spark imports this package, and has no use for pipelines.
    if name in ("Pipeline", "PipelineError"):
        from moldau.spark import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
