"""Spark: topics as tables and streams.

    from moldau.spark import session

    spark = session()
    spark.read.format("moldau").option("subscribe", "orders") ...

The source is there in any SparkSession whose workers have this package: `pyspark_moldau` registers
it. Nothing here imports pyspark before it is needed, so the error for want of it can be clear.
"""

from __future__ import annotations

from moldau.spark.errors import DataLoss, OptionError, ReadStalled, WriteFailed
from moldau.spark.spark_session import SparkMissing, session

__all__ = ["DataLoss", "OptionError", "ReadStalled", "SparkMissing", "WriteFailed", "session"]
