"""Batches of a stream to a topic: for `foreachBatch`, in every output mode, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from moldau.spark.sink.committers import Committers
from moldau.spark.sink.options import SinkOptions
from moldau.spark.sink.staged import BatchName

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# The life of this process, if it is a driver.
_DRIVER = uuid4().hex[:12]


def to_topic(topic: str | None = None, **options: str) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes a batch's rows to a topic, exactly once.

    Spark has no update mode for sinks in Python; this takes it, too. The options are those of
    `writeStream.format("moldau")`, and so are the columns:

        totals.writeStream.outputMode("update").foreachBatch(
            to_topic("totals", **{"kafka.bootstrap.servers": "127.0.0.1:9092"})
        ).option("checkpointLocation", "checkpoint").start()

    Each query needs a function of its own. A batch may be written to several topics, but only once
    to each, and only once with a column of topics.
    """
    given = options if topic is None else {**options, "topic": topic}
    committers = Committers()

    def write(frame: DataFrame, batch_id: int) -> None:
        send_frame(frame, SinkOptions.parse(given, frame.schema, strict=False), committers)

    return write


def send_frame(
    frame: DataFrame, options: SinkOptions, committers: Committers, batch: BatchName | None = None
) -> int:
    """Write a frame to a topic and return how many rows it had; without a `batch`, the one that
    the query is at."""
    import pickle

    from moldau.spark.lake.tasks import map_in_arrow

    send = partial(_send_records, options, batch, _DRIVER)
    sent = map_in_arrow(frame, send, "records bigint, staged binary").collect()
    staged = [pickle.loads(row["staged"]) for row in sent if row["staged"] is not None]
    committers.commit(options.staging, staged)
    return sum(row["records"] for row in sent)


def _send_records(
    options: SinkOptions,
    batch: BatchName | None,
    driver: str,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows to a topic."""
    import pickle

    import pyarrow as pa

    from moldau.spark.sink.sink import batch_of_stream, write_records

    name = batch or batch_of_stream(options.topic, driver)
    written = write_records(options, name, batches)
    staged = None if written.staged is None else pickle.dumps(written.staged)
    yield pa.RecordBatch.from_pydict(
        {
            "records": pa.array([written.records], pa.int64()),
            "staged": pa.array([staged], pa.binary()),
        }
    )
