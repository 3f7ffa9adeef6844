"""Batches of rows and their order, for tests."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from moldau.spark.lake import (
    Offsets,
)


def numbers(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end, numPartitions=2).withColumnRenamed("id", "n")


def offsets(first: int, end: int) -> Offsets:
    return Offsets({"orders": {0: (first, end)}})
