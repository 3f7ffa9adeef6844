"""Spark: topics as tables and streams.

    from moldau.spark import session

    spark = session()
    spark.read.format("moldau").option("subscribe", "orders") ...

The source is there in any SparkSession whose workers have this package: `pyspark_moldau` registers
it. Nothing here imports pyspark before it is needed, so the error for want of it can be clear.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from moldau.spark.errors import DataLoss, OptionError, ReadStalled, WriteFailed
from moldau.spark.runtime.session import SparkFailed, SparkMissing, session

if TYPE_CHECKING:
    from moldau.spark.lag_listener import LagListener
    from moldau.spark.pipeline import Pipeline, PipelineError
    from moldau.spark.sink.batches import to_topic

__all__ = [
    "DataLoss",
    "LagListener",
    "OptionError",
    "Pipeline",
    "PipelineError",
    "ReadStalled",
    "SparkFailed",
    "SparkMissing",
    "WriteFailed",
    "session",
    "to_topic",
]

# Every worker of Spark imports this package, and has no use for these.
_LATER = {
    "LagListener": "moldau.spark.lag_listener",
    "Pipeline": "moldau.spark.pipeline",
    "PipelineError": "moldau.spark.pipeline",
    "to_topic": "moldau.spark.sink.batches",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
