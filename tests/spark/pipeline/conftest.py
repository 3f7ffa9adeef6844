"""Pipelines on a real Spark, started once a module."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import JAVA_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from moldau.spark import session

    spark = session(
        "test",
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.sql.warehouse.dir": tempfile.gettempdir(),
            "spark.scheduler.mode": "FAIR",
        },
    )
    yield spark
    spark.stop()
