"""Spark's own readers of lake tables, where Maven Central has them for this release of Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from bench.kafka.jars import Artifact, fetch
from moldau.bench.errors import Unavailable
from tests.spark.lake.kinds import KINDS, Kind

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

RELEASE = ".".join(pyspark.__version__.split(".")[:2])
RUNTIMES: dict[Kind, Artifact] = {
    "delta": Artifact("io.delta", f"delta-spark_{RELEASE}_2.13", "[4,)"),
    "iceberg": Artifact("org.apache.iceberg", f"iceberg-spark-runtime-{RELEASE}_2.13", "[1,)"),
}
DRIVER = """
import sys
from pathlib import Path
from shutil import copy

from moldau.spark import session
from tests.spark.lake.kinds import sink_to

kind, folder, jars = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
config = {"spark.driver.memory": "512m", "spark.jars": jars}
if kind == "delta":
    config["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    config["spark.sql.catalog.spark_catalog"] = catalog
spark = session("readers", master="local[2]", config=config)
sink = sink_to(kind, folder, app_id="it", mode="upsert", keys=["id"], order_by=["id"])
for batch in range(2):
    rows = spark.range(batch * 50, 100).selectExpr("id", f"concat('{batch}-', id) AS name")
    sink.write(rows, batch)
if kind == "iceberg":
    # Spark finds a table without a catalog by the number of its newest metadata.
    newest = max(folder.glob("**/*.metadata.json"), key=lambda path: path.name)
    copy(newest, newest.with_name("v1.metadata.json"))
    newest.with_name("version-hint.text").write_text("1")
    folder = newest.parent.parent
found = spark.read.format(kind).load(str(folder))
print(*found.selectExpr("count(*)", "sum(id)", "min(name)", "max(name)").first())
spark.stop()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_spark_reads_what_is_written(kind: Kind, tmp_path: Path) -> None:
    runtime = RUNTIMES[kind]
    try:
        jars = fetch(runtime.artifact, [runtime])
    except Unavailable as reason:
        pytest.skip(f"Spark {RELEASE} cannot read {kind} tables: {reason}")
    words = [sys.executable, "-c", DRIVER, kind, str(tmp_path), ",".join(map(str, jars.iterdir()))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "100 4950 0-0 1-99"
