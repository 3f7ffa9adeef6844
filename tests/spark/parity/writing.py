"""Features of the sink: the records that rows become."""

from __future__ import annotations

from typing import Any

from tests.spark.parity.feature import Part, as_expected
from tests.spark.parity.scene import OWN, WITHIN_S, Scene
from tests.spark.parity.streaming import in_real_time
from tests.spark.topics import fresh_topic, read_by_librdkafka

writes = Part("Writing to topics")


def _written(scene: Scene, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
    return read_by_librdkafka(scene.broker, topic, partitions)


@writes.feature("`key` and `value`, as strings and as binary, and null")
def keys_and_values(scene: Scene) -> str:
    topic = fresh_topic(scene.broker)
    scene.write(scene.spark.sql("select 'a' as key, binary('b') as value"), topic=topic)
    scene.write(scene.spark.sql("select binary('c') as key, string(null) as value"), topic=topic)
    found = [(row["key"], row["value"]) for row in _written(scene, topic)]
    return as_expected(found, [(b"a", b"b"), (b"c", None)])


@writes.feature("the column `topic`")
def topic_column(scene: Scene) -> str:
    topic = fresh_topic(scene.broker)
    scene.write(scene.spark.sql(f"select '{topic}' as topic, '1' as value"))
    return as_expected(len(_written(scene, topic)), 1)


@writes.feature("the option `topic` over the column")
def topic_option(scene: Scene) -> str:
    topic = fresh_topic(scene.broker)
    scene.write(scene.spark.sql("select 'no-such-topic' as topic, '1' as value"), topic=topic)
    return as_expected(len(_written(scene, topic)), 1)


@writes.feature(
    "no topic, neither as an option nor as a column",
    {"topic option required|name the topic in the option": "refused"},
)
def no_topic(scene: Scene) -> str:
    scene.write(scene.spark.sql("select '1' as value"))
    return "writes"


@writes.feature(
    "null in the column `topic`", {"contains a null topic|a row has no topic": "refused"}
)
def null_topic(scene: Scene) -> str:
    scene.write(scene.spark.sql("select string(null) as topic, '1' as value"))
    return "writes"


@writes.feature("the column `partition`")
def partition_column(scene: Scene) -> str:
    topic = fresh_topic(scene.broker, 3)
    scene.write(scene.spark.sql("select 2 as partition, '1' as value"), topic=topic)
    return as_expected([row["partition"] for row in _written(scene, topic, 3)], [2])


@writes.feature("the column `headers`")
def headers_column(scene: Scene) -> str:
    topic = fresh_topic(scene.broker)
    headers = "array(named_struct('key', 'a', 'value', binary('b'))) as headers"
    scene.write(scene.spark.sql(f"select '1' as value, {headers}"), topic=topic)
    found = [row["headers"] for row in _written(scene, topic)]
    return as_expected(found, [[{"key": "a", "value": b"b"}]])


@writes.feature("the partitions of the keys `a` to `l`, of 3")
def partitioner(scene: Scene) -> str:
    topic = fresh_topic(scene.broker, 3)
    keys = ", ".join(f"'{letter}'" for letter in "abcdefghijkl")
    rows = scene.spark.sql(f"select explode(array({keys})) as key").selectExpr(
        "key", "key as value"
    )
    scene.write(rows, topic=topic)
    found = sorted((row["key"], row["partition"]) for row in _written(scene, topic, 3))
    return " ".join(str(partition) for _, partition in found)


@writes.feature("other columns")
def extra_columns(scene: Scene) -> str:
    topic, name = fresh_topic(scene.broker), f"extra_of_{scene.connector}"
    scene.write(scene.spark.sql(f"select '1' as value, 2 as {name}"), topic=topic)
    assert len(_written(scene, topic)) == 1
    return "ignored, with a warning" if scene.has_logged(name) else "ignored"


@writes.feature("a row that was read from a topic, as it is")
def row_as_it_is(scene: Scene) -> str:
    source, target = scene.topic(3), fresh_topic(scene.broker)
    scene.write(scene.read(subscribe=source), topic=target)
    return as_expected([int(row["value"]) for row in _written(scene, target)], [0, 1, 2])


@writes.feature(
    "no column `value`", {"attribute 'value' not found|there is no column 'value'": "refused"}
)
def no_value(scene: Scene) -> str:
    scene.write(scene.spark.sql("select '1' as key"), topic=fresh_topic(scene.broker))
    return "writes"


@writes.feature(
    "a `value` that is a number", {"attribute unsupported type|'value' is int": "refused"}
)
def number_value(scene: Scene) -> str:
    scene.write(scene.spark.sql("select 1 as value"), topic=fresh_topic(scene.broker))
    return "writes"


@writes.feature(
    "`df.write` without a mode",
    {"UNSUPPORTED_DATA_SOURCE_SAVE_MODE": "refused"},
    denied=True,
    note='`mode("append")`',
)
def no_mode(scene: Scene) -> str:
    return _in_mode(scene, "")


@writes.feature(
    '`mode("overwrite")`', {"(?i)mode overwrite not allowed|cannot be overwritten": "refused"}
)
def overwrite_mode(scene: Scene) -> str:
    return _in_mode(scene, "overwrite")


@writes.feature(
    '`mode("ignore")`', {"(?i)mode ignore not allowed|UNSUPPORTED_DATA_SOURCE_SAVE_MODE": "refused"}
)
def ignore_mode(scene: Scene) -> str:
    return _in_mode(scene, "ignore")


def _in_mode(scene: Scene, mode: str) -> str:
    topic = fresh_topic(scene.broker)
    scene.write(scene.spark.sql("select '1' as value"), mode, topic=topic)
    return as_expected(len(_written(scene, topic)), 1)


@writes.feature("a setting of the producer: `kafka.compression.type`")
def producer_setting(scene: Scene) -> str:
    topic = fresh_topic(scene.broker)
    rows = scene.spark.sql("select '1' as value")
    scene.write(rows, topic=topic, **{"kafka.compression.type": "zstd"})
    return as_expected(len(_written(scene, topic)), 1)


@writes.feature("an unknown `kafka.` setting", {"(?i)no such configuration property": "refused"})
def unknown_setting(scene: Scene) -> str:
    return _passed_over(scene, f"kafka.no.such.producer.setting.{scene.connector}")


@writes.feature("an unknown option")
def unknown_option(scene: Scene) -> str:
    return _passed_over(scene, f"tpoic.{scene.connector}")


def _passed_over(scene: Scene, name: str) -> str:
    topic = fresh_topic(scene.broker)
    scene.write(scene.spark.sql("select '1' as value"), topic=topic, **{name: "1"})
    assert len(_written(scene, topic)) == 1
    logged = scene.has_logged(name.removeprefix("kafka."))
    return "ignored, with a warning" if logged else "ignored"


@writes.feature('a stream, `outputMode("append")`')
def append_stream(scene: Scene) -> str:
    source, target = scene.topic(3), fresh_topic(scene.broker)
    _write_stream(scene, scene.stream(subscribe=source).select("value"), "append", target)
    return as_expected([int(row["value"]) for row in _written(scene, target)], [0, 1, 2])


@writes.feature(
    'a stream, `outputMode("update")`',
    {"does not support Update mode": "refused"},
    denied=True,
    note="[`to_topic`](#update-mode)",
)
def update_stream(scene: Scene) -> str:
    return _totals(scene, "update")


@writes.feature('a stream, `outputMode("complete")`')
def complete_stream(scene: Scene) -> str:
    return _totals(scene, "complete")


def _totals(scene: Scene, mode: str) -> str:
    source, target = scene.topic(3), fresh_topic(scene.broker)
    rows = scene.stream(subscribe=source, maxOffsetsPerTrigger="2")
    counts = rows.groupBy("topic").count().selectExpr("string(count) as value")
    _write_stream(scene, counts, mode, target)
    return as_expected([int(row["value"]) for row in _written(scene, target)], [2, 3])


def _write_stream(scene: Scene, frame: Any, mode: str, target: str) -> None:
    running = scene.write_stream(frame, mode, target)
    try:
        assert running.query.awaitTermination(WITHIN_S), "the query does not end"
    finally:
        running.query.stop()


@writes.feature(
    "`trigger(realTime=...)` into a topic, from Spark's own source",
    {"SINK_NOT_IN_ALLOWLIST": "refused"},
    denied=True,
)
def real_time_sink(scene: Scene) -> str:
    return in_real_time(scene, OWN, scene.connector)
