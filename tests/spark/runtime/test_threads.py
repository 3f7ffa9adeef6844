"""Sources and sinks from another thread of the driver than the one that made the session."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.testing import Broker
from tests.spark.topics import fresh_topic, numbered, produce, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def test_any_thread_may_start_a_stream_and_write(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    source, target = fresh_topic(moldau_session_broker), fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, source, numbered(0, 3))
    brokers = {"kafka.bootstrap.servers": moldau_session_broker.bootstrap}

    def copy() -> None:
        stream = spark.readStream.format("moldau").options(**brokers, subscribe=source)
        rows = stream.option("startingOffsets", "earliest").load().select("value")
        writer = rows.writeStream.format("moldau").options(**brokers, topic=target)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        batch = spark.read.format("moldau").options(**brokers, subscribe=source).load()
        batch.select("value").write.format("moldau").mode("append").options(
            **brokers, topic=target
        ).save()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(copy).result()
    assert len(read_by_librdkafka(moldau_session_broker, target)) == 6
