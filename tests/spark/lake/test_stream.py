"""From a topic to a table, as a stream: replays, restarts, a lost checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark.lake import DeltaSink, Offsets, Written, committed_offsets, offsets_of_batch
from moldau.testing import Broker
from tests.spark.lake.tables import rows_of, values_of
from tests.spark.topics import fresh_topic, numbered, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


class Copy:
    """A query that copies a topic of numbers to a table."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        self.table = str(folder / "table")
        self.checkpoint = str(folder / "checkpoint")
        self.written: list[Written] = []
        self._spark, self._broker, self._topic = spark, broker, topic
        self._start: Offsets | None = None

    def start(self, starting_offsets: str = "earliest", start: Offsets | None = None) -> None:
        self.written.clear()
        sink = DeltaSink(self.table, app_id="copy")

        def write(batch: DataFrame, batch_id: int) -> None:
            offsets = offsets_of_batch(self.checkpoint, batch_id, start)
            self.written.append(sink.write(batch, batch_id, offsets))

        self._query(starting_offsets, write).awaitTermination()

    def _query(self, starting_offsets: str, write: object) -> StreamingQuery:
        stream = (
            self._spark.readStream.format("moldau")
            .option("kafka.bootstrap.servers", self._broker.bootstrap)
            .option("subscribe", self._topic)
            .option("startingOffsets", starting_offsets)
            .option("maxOffsetsPerTrigger", 40)
            .load()
            .selectExpr("int(string(value)) n", "partition", "offset")
        )
        return (
            stream.writeStream.foreachBatch(write)  # type: ignore[arg-type]
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )


@pytest.mark.slow
def test_a_stream_is_in_the_table_once_through_replays_and_a_lost_checkpoint(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_topic(moldau_session_broker, partitions=2)
    produce(moldau_session_broker, topic, numbered(0, 100), per_batch=10)
    copy = Copy(spark, moldau_session_broker, topic, tmp_path)
    copy.start()
    assert sum(written.rows for written in copy.written) == 100
    assert len(copy.written) >= 3
    last, offsets = committed_offsets(copy.table, "copy") or (-1, Offsets())
    assert last == len(copy.written) - 1
    assert sum(end for _, _, (_, end) in offsets) == 100

    # As if the driver had died between the table's commit and Spark's: the batch is run again.
    (Path(copy.checkpoint) / "commits" / str(last)).unlink()
    (Path(copy.checkpoint) / "commits" / f".{last}.crc").unlink(missing_ok=True)
    produce(moldau_session_broker, topic, numbered(100, 20))
    copy.start()
    assert [written.skipped for written in copy.written] == [True, False]
    assert values_of(copy.table, "n") == list(range(120))

    shutil.rmtree(copy.checkpoint)
    produce(moldau_session_broker, topic, numbered(120, 30))
    with pytest.raises(StreamingQueryException, match="to continue after a lost checkpoint, start"):
        copy.start()
    shutil.rmtree(copy.checkpoint)
    _, offsets = committed_offsets(copy.table, "copy") or (-1, Offsets())
    copy.start(offsets.starting_offsets(), offsets)
    assert not any(written.skipped for written in copy.written)
    assert values_of(copy.table, "n") == list(range(150))
    places = {(row["partition"], row["offset"]) for row in rows_of(copy.table)}
    assert len(places) == 150
