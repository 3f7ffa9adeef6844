"""A driver to be killed: merges a topic of changes into a copy and a history, until it dies.

python -m tests.spark.lake.merging_driver KIND BOOTSTRAP TOPIC FOLDER MOST [--once]

A change is "KEY LSN VALUE"; without a value it deletes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark import session
from moldau.spark.lake import offsets_of_batch
from tests.spark.lake.kinds import KINDS, Kind, sink_to


def start_merge(
    spark: SparkSession,
    kind: Kind,
    bootstrap: str,
    topic: str,
    folder: Path,
    most: int,
    once: bool = False,
) -> StreamingQuery:
    checkpoint = str(folder / "checkpoint")
    copy, history = (
        sink_to(
            kind,
            folder / name,
            app_id="merge",
            mode="upsert",
            keys=["k"],
            order_by=["lsn"],
            delete_where="is_gone",
            scd=2 if name == "history" else 1,
            optimize_every=4,
        )
        for name in ("copy", "history")
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        offsets = offsets_of_batch(checkpoint, batch_id)
        copy.write(batch, batch_id, offsets)
        history.write(batch, batch_id, offsets)

    stream = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", most)
        .load()
        .selectExpr("split(string(value), ' ') AS part")
        .selectExpr("int(part[0]) k", "int(part[1]) lsn", "part[2] v", "part[2] = '' AS is_gone")
    )
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if once else writer).start()


def main(kind: str, bootstrap: str, topic: str, folder: str, most: str, once: str = "") -> None:
    config = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    spark = session("merging", master="local[2]", config=config)
    (chosen,) = (each for each in KINDS if each == kind)
    query = start_merge(spark, chosen, bootstrap, topic, Path(folder), int(most), bool(once))
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
