"""Machines without pandas, which only stateful operators in Python need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

# Python runs this as it starts: the driver and all of its workers.
HIDING = """
import sys
from importlib.machinery import PathFinder


class Others(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "pandas" else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Others
"""
DRIVER = """
import sys

from confluent_kafka import Producer
from pyspark.sql import functions as F

from moldau.spark import session
from moldau.spark.lake import DeltaSink, IcebergSink
from moldau.testing import Broker

folder = sys.argv[1]
with Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for name in ("a", "b", "a"):
        producer.produce("names", name)
    assert producer.flush(10) == 0
    spark = session("bare", master="local[2]", config={"spark.driver.memory": "512m"})
    source = spark.read.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap)
    loud = F.udf(str.upper, "string")
    names = source.option("subscribe", "names").load().select(
        loud(F.col("value").cast("string")).alias("name"), "offset"
    )
    settings = {"app_id": "it", "mode": "upsert", "keys": ["name"], "order_by": ["offset"]}
    for sink in (
        DeltaSink(f"{folder}/delta", **settings),
        IcebergSink("shop.names", warehouse=f"{folder}/iceberg", **settings),
    ):
        for batch in range(2):
            sink.write(names, batch)
    spark.stop()
assert "pandas" not in sys.modules
"""


def test_a_pipeline_reads_merges_and_writes_without_pandas(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    root = str(Path(__file__).parents[3])
    words = [sys.executable, "-c", DRIVER, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), root])}
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pandas" not in done.stderr
    for kind in ("delta", "iceberg"):
        assert list(tmp_path.glob(f"{kind}/**/*.parquet"))
