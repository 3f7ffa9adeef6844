"""Fixtures of Spark: what needs it is skipped where the extra is not installed, and says so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
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


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where an Apache Kafka listens: make topics with names of your own."""
    from moldau.bench.errors import Unavailable
    from tests.spark.apache_kafka import running_kafka

    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("apache-kafka")
        try:
            bootstrap = stack.enter_context(running_kafka(folder))
        except Unavailable as reason:
            pytest.skip(f"no Apache Kafka, and MOLDAU_TEST_KAFKA_BOOTSTRAP names none: {reason}")
        yield bootstrap
