"""`python -m bench.kafka.spark_load FOLDER JARS`: a local Spark that reads topics as it is told.

One job a line on standard input, one answer a line; `ready` first.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec

from bench.kafka.measure.spark import ReadJob, RowRate
from moldau.bench.errors import BenchFailed
from moldau.bench.proc import tree_cpu_seconds
from moldau.spark import session

_SLOTS = 2
_GROUPS = 1000
_END_WITHIN_S = 30


def main() -> None:
    folder, jars = sys.argv[1:]
    spark = session(
        "bench",
        master=f"local[{_SLOTS}]",
        config={
            "spark.driver.memory": "1g",
            "spark.jars": jars,
            "spark.local.dir": f"{folder}/spark",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.sql.shuffle.partitions": str(_SLOTS),
        },
    )
    _say("ready")
    try:
        for line in sys.stdin:
            job = msgspec.json.decode(line, type=ReadJob)
            _say(msgspec.json.encode(_read(spark, job)).decode())
    finally:
        # Java goes when its input closes; its files must be gone before the folder is.
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.proc.stdin.close()
        gateway.proc.wait(_END_WITHIN_S)
    _say("done")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _read(spark: Any, job: ReadJob) -> RowRate:
    """As a dashboard would: a thousand groups, with a count and sizes."""
    reader = spark.read.format(job.format).option("kafka.bootstrap.servers", job.bootstrap)
    rows = reader.option("subscribe", job.topic).option("startingOffsets", "earliest").load()
    groups = rows.selectExpr(f"pmod(offset, {_GROUPS}) as event", "length(value) as size")
    cpu, started = tree_cpu_seconds(), time.monotonic()
    made = groups.groupBy("event").agg({"size": "sum", "*": "count"}).collect()
    took, used = time.monotonic() - started, tree_cpu_seconds() - cpu
    found = sum(int(group["count(1)"]) for group in made)
    if found != job.rows:
        raise BenchFailed(f"{found} rows came out of {job.topic} where {job.rows} went in")
    return RowRate(found / took, used * 1e6 / found)


if __name__ == "__main__":
    main()
