"""Writing to topics on a real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from moldau.spark.errors import OptionError
from moldau.spark.sink.options import SinkOptions
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.spark.topics import fresh_topic, numbered, produce, read_by_librdkafka

BASE = {"kafka.bootstrap.servers": "host:9092"}
TYPES = {"int": IntegerType(), "string": StringType()}


def save(frame: DataFrame, broker: Broker, **options: str) -> None:
    writer = frame.write.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).mode("append").save()


def copy_stream(
    spark: SparkSession, broker: Broker, source: str, target: str, checkpoint: Path, partitions: int
) -> None:
    """What the stream has not read yet, in so many tasks."""
    rows = spark.readStream.format("moldau").option("subscribe", source)
    rows = rows.option("kafka.bootstrap.servers", broker.bootstrap)
    frame = rows.option("startingOffsets", "earliest").load().select("value").coalesce(partitions)
    writer = frame.writeStream.format("moldau").option("topic", target)
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
    query = (
        writer.option("exactlyOnce", "true")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.mark.spark
@pytest.mark.timeout(400)
class TestOnSpark:
    def test_rows_become_records(self, spark: SparkSession, moldau_session_broker: Broker) -> None:
        topic = fresh_topic(moldau_session_broker, partitions=3)
        frame = spark.range(500, numPartitions=2).selectExpr(
            "cast(id % 20 as string) as key",
            "cast(cast(id as string) as binary) as value",
            "if(id % 2 = 0, array(named_struct('key', 'n', 'value', cast('x' as binary))), null)"
            " as headers",
        )
        save(frame, moldau_session_broker, topic=topic, **{"kafka.compression.type": "lz4"})
        rows = read_by_librdkafka(moldau_session_broker, topic, 3)
        assert sorted(int(row["value"]) for row in rows) == list(range(500))
        homes: dict[bytes, set[int]] = {}
        for row in rows:
            number = int(row["value"])
            assert row["key"] == b"%d" % (number % 20)
            expected = [{"key": "n", "value": b"x"}] if number % 2 == 0 else None
            assert row["headers"] == expected
            homes.setdefault(row["key"], set()).add(row["partition"])
        # A key has one home, and it is where Java's client would put it (murmur2).
        assert all(len(partitions) == 1 for partitions in homes.values())
        assert homes[b"0"] != homes[b"1"] or homes[b"1"] != homes[b"2"]

    def test_topic_and_partition_may_come_from_columns(
        self, spark: SparkSession, moldau_session_broker: Broker
    ) -> None:
        one = fresh_topic(moldau_session_broker, partitions=2)
        two = fresh_topic(moldau_session_broker, partitions=2)
        frame = spark.createDataFrame(
            [(one, 0, "a"), (one, 1, "b"), (two, 1, None)],
            "topic string, partition int, value string",
        )
        save(frame, moldau_session_broker)
        assert [(row["partition"], row["value"]) for row in read_by_librdkafka(
            moldau_session_broker, one, 2
        )] == [(0, b"a"), (1, b"b")]  # fmt: skip
        (row,) = read_by_librdkafka(moldau_session_broker, two, 2)
        assert (row["partition"], row["value"]) == (1, None)

    @pytest.mark.moldau({"auto.create.topics.enable": False}, message_max_bytes=1000)
    def test_what_is_wrong_is_said(self, spark: SparkSession, moldau_broker: Broker) -> None:
        topic = fresh_topic(moldau_broker)
        rows = spark.createDataFrame([("x",)], "value string")
        long = spark.createDataFrame([("x" * 5000,)], "value string")
        unsent = spark.createDataFrame([("x", None)], "value string, topic string")
        for frame, options, message in (
            (rows, {"topic": "nowhere"}, "topic 'nowhere' cannot be written"),
            (long, {"topic": topic}, "were not written: spark-"),
            (long, {"topic": topic}, "MESSAGE_TOO_LARGE (record batch of 5070 bytes"),
            (
                long,
                {"topic": topic, "exactlyOnce": "false"},
                "were not written: Broker: Message size too large",
            ),
            (long, {"topic": topic, "kafka.acks": "1", "exactlyOnce": "true"}, "kafka.acks"),
            (unsent, {}, "a row has no topic"),
            (
                rows,
                {"topic": topic, "kafka.linger": "1"},
                "No such configuration property: \"linger\"; did you mean 'kafka.linger.ms'?",
            ),
        ):
            with pytest.raises(PySparkException) as caught:
                save(frame, moldau_broker, **options)
            assert message in str(caught.value)
        assert read_by_librdkafka(moldau_broker, topic) == []

    def test_a_write_is_all_or_nothing(
        self, spark: SparkSession, moldau_session_broker: Broker
    ) -> None:
        broker = moldau_session_broker
        topic = fresh_topic(broker, partitions=2)
        # The first task has written everything when the second fails.
        failing = spark.range(100, numPartitions=2).selectExpr(
            "cast(if(id = 99, raise_error('no'), id) as string) as value"
        )
        with pytest.raises(PySparkException):
            save(failing, broker, topic=topic)
        save(spark.range(3).selectExpr("cast(id as string) as value"), broker, topic=topic)

        def are_all_there() -> bool:
            rows = sorted(row["value"] for row in read_by_librdkafka(broker, topic, 2))
            assert set(rows) <= {b"0", b"1", b"2"}
            return rows == [b"0", b"1", b"2"]

        until(are_all_there, "the rows of the second write")

    def test_a_write_with_a_name_is_done_once(
        self, spark: SparkSession, moldau_session_broker: Broker
    ) -> None:
        broker = moldau_session_broker
        topic = fresh_topic(broker, partitions=2)
        names = {"topic": topic, "txnAppId": f"app of {topic}"}
        for version in ("0", "1", "1", "0", "2"):
            frame = spark.range(4, numPartitions=1 + int(version)).selectExpr(
                f"concat('{version}-', id) as value"
            )
            save(frame, broker, **names, txnVersion=version)
        rows = [row["value"].decode() for row in read_by_librdkafka(broker, topic, 2)]
        assert sorted(rows) == [f"{version}-{id}" for version in range(3) for id in range(4)]

    @pytest.mark.slow
    def test_a_batch_of_a_stream_that_runs_again_is_there_once(
        self, spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
    ) -> None:
        broker = moldau_session_broker
        source, target = fresh_topic(broker, partitions=2), fresh_topic(broker, partitions=2)
        for first in (0, 50):
            produce(broker, source, numbered(first, 50), partition=first % 2)
            for partitions in (2, 1):
                copy_stream(spark, broker, source, target, tmp_path, partitions)
                # As if the driver had died between its decision and Spark's own note of it.
                for note in (tmp_path / "commits").iterdir():
                    if not note.name.startswith(".") and int(note.name) == first // 50:
                        note.unlink()
                        note.with_name(f".{note.name}.crc").unlink(missing_ok=True)
        copy_stream(spark, broker, source, target, tmp_path, 1)
        rows = [int(row["value"]) for row in read_by_librdkafka(broker, target, 2)]
        assert sorted(rows) == list(range(100))


def parse(schema: str, **more: str) -> SinkOptions:
    # Spark parses such a text too, but only where a session runs.
    fields = [column.split() for column in schema.split(", ")]
    columns = StructType([StructField(name, TYPES[type]) for name, type in fields])
    return SinkOptions.parse(BASE | more, columns)


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("key string", {"topic": "t"}, "no column 'value'"),
        ("value string", {}, "option 'topic', or give a column"),
        ("value int", {"topic": "t"}, "'value' is int, but must be string or binary"),
        ("value string, partition string", {"topic": "t"}, "'partition' is string"),
        ("value string", {"topik": "t"}, "did you mean 'topic'"),
        ("value string", {"topic": "t", "kafka.transactional.id": "x"}, "not supported"),
        ("value string", {"topic": "t", "txnAppId": "x"}, "only together"),
        ("value string", {"topic": "t", "exactlyOnce": "perhaps"}, "must be true or false"),
        (
            "value string",
            {"topic": "t", "txnAppId": "x", "txnVersion": "1", "exactlyOnce": "false"},
            "has no effect",
        ),
        (
            "value string",
            {"topic": "t", "exactlyOnce": "true", "kafka.partitioner": "random"},
            "kafka.partitioner",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    schema: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        parse(schema, **options)


def test_columns_that_no_record_has_are_passed_over_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(3):
        parse("value string, colour string", topic="t")
    assert caplog.text.count("not written to the topic: colour; its columns are topic, key") == 1


def test_settings_of_javas_producer_have_their_names() -> None:
    given = {"kafka.buffer.memory": "1048576", "kafka.max.request.size": "7", "kafka.acks": "all"}
    given |= {"kafka.send.buffer.bytes": "9", "kafka.max.block.ms": "1", "includeHeaders": "true"}
    settings = dict(parse("value string", topic="t", **given).producer)
    assert settings["socket.send.buffer.bytes"] == "9"
    assert "max.block.ms" not in settings
    assert settings["queue.buffering.max.kbytes"] == "1024"
    assert (settings["message.max.bytes"], settings["acks"]) == ("7", "all")
    assert settings["enable.idempotence"] == "true"
