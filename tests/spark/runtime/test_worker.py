"""The Python processes of a local Spark: what they have loaded, and what is left to collect."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from moldau.spark.runtime.worker import settle


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_workers_are_forked_with_everything_loaded_and_kept_from_collection(
    spark: SparkSession,
) -> None:
    # Arrow looks for pandas itself, and loads what it finds.
    modules = {"moldau.arrow.kernels", "pandas"}

    def look(rows: Iterable[Any]) -> Iterator[tuple[bool, bool]]:
        yield modules <= sys.modules.keys(), gc.get_freeze_count() > 10_000

    assert set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(look).collect()) == {
        (True, True)
    }


def test_outside_of_spark_nothing_is_kept_from_collection() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before
