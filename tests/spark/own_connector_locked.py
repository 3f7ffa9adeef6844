"""Spark's own Kafka connector against a locked broker, for a process of its own.

For each file of options, writes a row with the topic's name and reads it back; prints what came of
each: the values, or what the connector was told.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.spark import session
from tests.spark.own_connector import own_connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(*paths: str) -> int:
    # With what reads tokens.
    _, jars = own_connector("jose4j-*.jar")
    config = {"spark.jars": ",".join(map(str, jars)), "spark.sql.shuffle.partitions": "1"}
    spark = session("own connector", master="local[1]", config=config)
    said = [round_trip(spark, **json.loads(Path(path).read_text())) for path in paths]
    spark.stop()
    sys.stdout.write(f"\n{json.dumps(said)}\n")
    return 0


def round_trip(spark: SparkSession, topic: str, options: dict[str, str]) -> str:
    try:
        rows = spark.sql(f"select '{topic}' as value")
        rows.write.format("kafka").options(**options, topic=topic).save()
        read = spark.read.format("kafka").options(**options, subscribe=topic).load()
        found = read.selectExpr("cast(value as string) as v").collect()
        return ",".join(row["v"] for row in found)
    except Exception as problem:
        return str(problem)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
