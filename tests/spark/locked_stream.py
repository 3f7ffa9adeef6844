"""A stream from one topic of a locked broker to another, for a process of its own.

Prints the plan of the stream, its progress, and how many records arrived.
"""

from __future__ import annotations

import sys
from pathlib import Path

from moldau.spark import session


def main(folder: Path, bootstrap: str) -> None:
    spark = session(
        "locked",
        master="local[1]",
        config={
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": folder.as_uri(),
        },
    )
    address = {"kafka.bootstrap.servers": bootstrap}
    one = spark.sql("select 'x' as value")
    one.write.format("moldau").options(**address, topic="in").mode("append").save()
    read = spark.readStream.format("moldau")
    stream = read.options(**address, subscribe="in", startingOffsets="earliest").load()
    write = stream.selectExpr("value").writeStream.format("moldau")
    write = write.options(**address, topic="out", checkpointLocation=str(folder / "checkpoint"))
    query = write.trigger(availableNow=True).start()
    query.awaitTermination()
    sys.stdout.write(f"{query._jsq.explainInternal(True)}\n{query.recentProgress}\n")
    found = spark.read.format("moldau").options(**address, subscribe="out").load().count()
    spark.stop()
    sys.stdout.write(f"{found} record\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
