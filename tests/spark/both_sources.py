"""A stream that is read by Spark's own Kafka source and by ours in turn, from one checkpoint.

`python -m tests.spark.both_sources BOOTSTRAP TOPIC FOLDER FIRST SECOND ...`: each of the formats
named reads what is there and two records more; the last line is what came, as JSON. Exit status 3
and a reason where the connector cannot be had.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

from confluent_kafka import Producer
from pyspark.sql import DataFrame

from bench.kafka.jars import connector_jars
from moldau.bench.errors import Unavailable
from moldau.spark import session

UNAVAILABLE = 3


def main(bootstrap: str, topic: str, folder: str, *formats: str) -> int:
    try:
        _, jars = connector_jars(version("pyspark"))
    except Unavailable as reason:
        print(reason)  # noqa: T201
        return UNAVAILABLE
    config = {"spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "512m"}
    spark = session("both", master="local[2]", config=config)
    seen: list[list[object]] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend([name, int(row["value"])] for row in batch.select("value").collect())

    producer = Producer({"bootstrap.servers": bootstrap})
    for turn, name in enumerate(formats):
        for number in (2 * turn, 2 * turn + 1):
            producer.produce(topic, str(number).encode())
        assert producer.flush(60) == 0
        reader = spark.readStream.format(name).option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(subscribe=topic, startingOffsets="earliest").load()
        writer = frame.writeStream.foreachBatch(keep).trigger(availableNow=True)
        writer.option("checkpointLocation", folder).start().awaitTermination()
    spark.stop()
    print(json.dumps(seen))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
