"""A driver to be killed: copies a topic of numbers to a table, until it is through or dies.

python -m tests.spark.lake.copying BOOTSTRAP TOPIC FOLDER MOST [--once]
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark import session
from moldau.spark.lake import DeltaSink, offsets_of_batch


def start_copy(
    spark: SparkSession, bootstrap: str, topic: str, folder: Path, most: int, once: bool = False
) -> StreamingQuery:
    """The query, from the beginning or where its checkpoint in the folder says."""
    checkpoint = str(folder / "checkpoint")
    sink = DeltaSink(str(folder / "table"), app_id="copy", optimize_every=5)

    def write(batch: DataFrame, batch_id: int) -> None:
        sink.write(batch, batch_id, offsets_of_batch(checkpoint, batch_id))

    stream = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", most)
        .load()
        .selectExpr("int(string(value)) n", "partition", "offset")
    )
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if once else writer).start()


def main(bootstrap: str, topic: str, folder: str, most: str, once: str = "") -> None:
    config = {"spark.driver.memory": "512m"}
    spark = session("copying", master="local[2]", config=config)
    start_copy(spark, bootstrap, topic, Path(folder), int(most), bool(once)).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
