"""Writing to topics on a real Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from moldau.spark.errors import OptionError
from moldau.spark.sink.options import SinkOptions
from moldau.testing import Broker
from tests.spark.topics import fresh_topic, read_by_librdkafka

BASE = {"kafka.bootstrap.servers": "host:9092"}
TYPES = {"int": IntegerType(), "string": StringType()}


def save(frame: DataFrame, broker: Broker, **options: str) -> None:
    writer = frame.write.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).mode("append").save()


@pytest.mark.spark
@pytest.mark.timeout(120)
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
            (long, {"topic": topic}, "were not written: Broker: Message size too large"),
            (unsent, {}, "null for its topic"),
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
        ("value string, colour string", {"topic": "t"}, "'colour' cannot be written"),
        ("value string", {"topik": "t"}, "did you mean 'topic'"),
        ("value string", {"topic": "t", "kafka.transactional.id": "x"}, "not supported"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    schema: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        parse(schema, **options)


def test_settings_of_javas_producer_have_their_names() -> None:
    given = {"kafka.buffer.memory": "1048576", "kafka.max.request.size": "7", "kafka.acks": "all"}
    given |= {"kafka.send.buffer.bytes": "9", "kafka.max.block.ms": "1", "includeHeaders": "true"}
    settings = dict(parse("value string", topic="t", **given).producer)
    assert settings["socket.send.buffer.bytes"] == "9"
    assert "max.block.ms" not in settings
    assert settings["queue.buffering.max.kbytes"] == "1024"
    assert (settings["message.max.bytes"], settings["acks"]) == ("7", "all")
    assert settings["enable.idempotence"] == "true"
