"""Streams beside the source and the sink: how far they are behind, and update mode."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark import LagListener, to_topic
from moldau.spark.source.behind import Lag
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.spark.topics import Sent, fresh_topic, produce, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


def test_changed_rows_go_to_a_topic_once_and_a_listener_knows_the_lag(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic, target = fresh_topic(broker, partitions=2), fresh_topic(broker)
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    reader = spark.readStream.format("moldau").options(**options)
    words = reader.options(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4"
    ).load()
    totals = words.groupBy("value").count().selectExpr("value AS key", "string(count) AS value")
    listener = LagListener()
    spark.streams.addListener(listener)
    try:
        for round_ in range(2):
            for partition in range(2):
                rows: list[Sent] = [(None, word, []) for word in (b"a", b"b", b"a")]
                produce(broker, topic, rows, partition=partition)
            query = (
                totals.writeStream.outputMode("update")
                .foreachBatch(to_topic(target, **options))
                .trigger(availableNow=True)
                .option("checkpointLocation", str(tmp_path))
                .queryName(f"round {round_}")
                .start()
            )
            query.awaitTermination()
            # What listeners are told comes a moment later.
            (lag,) = until(partial(done, listener, f"round {round_}"), "all is read")
            assert (lag.least, lag.most, lag.average) == (0, 0, 0)
            assert lag.description == f"Moldau: {topic} (2 partitions)"
    finally:
        spark.streams.removeListener(listener)
    sent = [(row["key"], int(row["value"])) for row in read_by_librdkafka(broker, target, 1)]
    # Two batches in each round: every one has sent the totals that it changed.
    assert len(sent) == len(set(sent))
    assert max(count for key, count in sent if key == b"a") == 8
    assert max(count for key, count in sent if key == b"b") == 4


def done(listener: LagListener, name: str) -> list[Lag]:
    lags = listener.lags(name)
    return lags if lags and lags[0].total == 0 else []
