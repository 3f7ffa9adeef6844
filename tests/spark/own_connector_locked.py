"""Spark's own Kafka connector against a locked broker, for a process of its own.

Writes two rows and reads them back with the right properties, then tries with a wrong password;
prints what came of both.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

from bench.kafka.jars import connector_jars
from moldau.bench.errors import Unavailable
from moldau.spark import session
from tests.spark.both_sources import UNAVAILABLE


def main(topic: str, properties: str, wrong: str) -> int:
    try:
        _, jars = connector_jars(version("pyspark"))
    except Unavailable as reason:
        sys.stdout.write(f"Spark's own connector is not to be had: {reason}\n")
        return UNAVAILABLE
    config = {"spark.jars": ",".join(map(str, jars)), "spark.sql.shuffle.partitions": "1"}
    spark = session("own connector", master="local[1]", config=config)
    given = json.loads(Path(properties).read_text())
    rows = spark.sql("select 'x' as value union all select 'y' as value")
    rows.write.format("kafka").options(**given, topic=topic).save()
    read = spark.read.format("kafka").options(**given, subscribe=topic).load()
    values = sorted(row["v"] for row in read.selectExpr("cast(value as string) as v").collect())
    try:
        refused = json.loads(Path(wrong).read_text())
        spark.read.format("kafka").options(**refused, subscribe=topic).load().collect()
        told = "it got in"
    except Exception as problem:
        told = str(problem)
    spark.stop()
    sys.stdout.write(f"\n{json.dumps([values, told])}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
