"""Fixtures of Spark: what needs it is skipped where the extra is not installed, and says so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from moldau.spark.runtime.session import LOGGING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# As Moldau sets them, and without the compiler for programs that run long.
JAVA_OPTIONS = f"-Dlog4j2.configurationFile={LOGGING.as_uri()} -XX:TieredStopAtLevel=1"

EXTRA = ("deltalake", "numba", "pyarrow", "pyspark")
MISSING = [name for name in EXTRA if find_spec(name) is None]

# test_extra.py stays, and says that the others, and all folders, were left out.
collect_ignore_glob = ["test_[!e]*.py", "[!t]*"] if MISSING else []


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small real Spark, started once a module: a second start in one process is quick."""
    from moldau.spark import session

    spark = session(
        "test",
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.sql.warehouse.dir": tempfile.gettempdir(),
            "spark.sql.session.timeZone": "UTC",
        },
    )
    yield spark
    spark.stop()
