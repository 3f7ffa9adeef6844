"""Features of tables: what a connector reads of topics in one go."""

from __future__ import annotations

import json

from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from tests.spark.parity.feature import Part, as_expected
from tests.spark.parity.scene import Scene
from tests.spark.topics import delete_before, fresh_topic, produce

WITHIN_S = 60.0
FIRST_MS = 1_700_000_000_000

reads = Part("Topics as tables")


@reads.feature("`subscribe`")
def subscribe(scene: Scene) -> str:
    one, other = scene.topic(3, 2), scene.topic(2)
    return as_expected(scene.values(subscribe=f"{one},{other}"), [0, 0, 1, 1, 2, 100, 101, 102])


@reads.feature("`subscribePattern`")
def subscribe_pattern(scene: Scene) -> str:
    topic = fresh_topic(scene.broker)
    name = f"my-{topic}-of-{scene.connector}"
    scene.broker.create_topic(name, 1)
    scene.add(name, 0, 3)
    found = scene.values(subscribePattern=f"{topic}-of-{scene.connector}")
    return "matches anywhere in a name" if found == [0, 1, 2] else f"matches whole names: {found}"


@reads.feature("`subscribePattern` that matches no topic")
def subscribe_to_none(scene: Scene) -> str:
    return f"{len(scene.values(subscribePattern='no-such-topic.*'))} rows"


@reads.feature("`assign`")
def assign(scene: Scene) -> str:
    topic = scene.topic(3, 2)
    return as_expected(scene.values(assign=json.dumps({topic: [1]})), [100, 101, 102])


@reads.feature("a topic that does not exist", {"UnknownTopicOrPartition|does not exist": "refused"})
def unknown_topic(scene: Scene) -> str:
    return f"{len(scene.values(subscribe='no-such-topic'))} rows"


@reads.feature("`startingOffsets` `earliest`, `endingOffsets` `latest`")
def whole(scene: Scene) -> str:
    options = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    return as_expected(scene.values(subscribe=scene.topic(3), **options), [0, 1, 2])


@reads.feature("`startingOffsets`, `endingOffsets` by partition, with -2 and -1")
def by_offsets(scene: Scene) -> str:
    topic = scene.topic(5, 2)
    start = json.dumps({topic: {"0": 3, "1": -2}})
    end = json.dumps({topic: {"0": -1, "1": 2}})
    found = scene.values(subscribe=topic, startingOffsets=start, endingOffsets=end)
    return as_expected(found, [3, 4, 100, 101])


@reads.feature(
    "`startingOffsets` without one of the partitions",
    {"don't match what are assigned|must name every partition": "refused"},
)
def some_offsets(scene: Scene) -> str:
    topic = scene.topic(5, 2)
    return str(scene.values(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 3}})))


@reads.feature("`startingOffsets` `latest`", {"(?i)starting.*(can't|cannot) be.*latest": "refused"})
def from_latest(scene: Scene) -> str:
    return str(scene.values(subscribe=scene.topic(3), startingOffsets="latest"))


@reads.feature("`endingOffsets` `earliest`", {"(?i)ending.*(can't|cannot) be.*earliest": "refused"})
def to_earliest(scene: Scene) -> str:
    return str(scene.values(subscribe=scene.topic(3), endingOffsets="earliest"))


@reads.feature("`startingTimestamp`, `endingTimestamp`")
def by_timestamp(scene: Scene) -> str:
    topic = scene.topic(5, 2, first_ms=FIRST_MS)
    times = {"startingTimestamp": str(FIRST_MS + 1), "endingTimestamp": str(FIRST_MS + 3)}
    return as_expected(scene.values(subscribe=topic, **times), [1, 2, 101, 102])


@reads.feature("`startingOffsetsByTimestamp`, `endingOffsetsByTimestamp`")
def by_timestamps(scene: Scene) -> str:
    topic = scene.topic(5, 2, first_ms=FIRST_MS)
    times = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": FIRST_MS + 1, "1": FIRST_MS + 4}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": FIRST_MS + 3, "1": FIRST_MS + 99}}),
    }
    return as_expected(scene.values(subscribe=topic, **times), [1, 2, 104])


@reads.feature(
    "`startingTimestamp` after the last record",
    {"No offset matched|no record at or after": "refused"},
)
def after_the_last(scene: Scene) -> str:
    topic = scene.topic(3, first_ms=FIRST_MS)
    return f"{len(scene.values(subscribe=topic, startingTimestamp=str(FIRST_MS + 99)))} rows"


@reads.feature("the same, with `startingOffsetsByTimestampStrategy` `latest`")
def after_the_last_leniently(scene: Scene) -> str:
    topic = scene.topic(3, first_ms=FIRST_MS)
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    found = scene.values(subscribe=topic, startingTimestamp=str(FIRST_MS + 99), **strategy)
    return f"{len(found)} rows"


@reads.feature("`minPartitions` 5, for 10 and 2 records")
def min_partitions(scene: Scene) -> str:
    topic = scene.topic(2, 2)
    scene.add(topic, 2, 8)
    frame = scene.read(subscribe=topic, minPartitions="5")
    assert frame.count() == 12
    return f"{frame.rdd.getNumPartitions()} tasks"


@reads.feature("`maxRecordsPerPartition` 4, for 10 and 2 records")
def max_records(scene: Scene) -> str:
    topic = scene.topic(2, 2)
    scene.add(topic, 2, 8)
    frame = scene.read(subscribe=topic, maxRecordsPerPartition="4")
    assert frame.count() == 12
    return f"{frame.rdd.getNumPartitions()} tasks"


@reads.feature("`includeHeaders`")
def headers(scene: Scene) -> str:
    topic = fresh_topic(scene.broker)
    produce(scene.broker, topic, [(None, b"0", [("a", b"b")]), (None, b"1", [])])
    rows = scene.read(subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    found = [
        row["headers"] and [(each.key, bytes(each.value)) for each in row["headers"]]
        for row in rows
    ]
    return as_expected(found, [[("a", b"b")], None])


@reads.feature("the columns, with `includeHeaders`")
def columns(scene: Scene) -> str:
    frame = scene.read(subscribe="any", includeHeaders="true")
    return ", ".join(f"`{name} {kind}`" for name, kind in frame.dtypes)


@reads.feature(
    "a schema of the user's own",
    {"(?i)SCHEMA_MISMATCH|schema of this source is fixed": "refused"},
)
def own_schema(scene: Scene) -> str:
    schema = StructType([StructField("value", StringType())])
    reader = scene.spark.read.format(scene.connector).schema(schema)
    address = {"kafka.bootstrap.servers": scene.broker.bootstrap}
    return str(reader.options(**address, subscribe=scene.topic(1)).load().collect())


@reads.feature("`kafka.isolation.level` `read_committed`")
def read_committed(scene: Scene) -> str:
    topic = fresh_topic(scene.broker)
    settings = {"bootstrap.servers": scene.broker.bootstrap, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(WITHIN_S)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        assert producer.flush(WITHIN_S) == 0
        producer.commit_transaction() if number % 2 else producer.abort_transaction()
    found = scene.values(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    return as_expected(found, [1, 3])


@reads.feature("`kafka.group.id`", note="`commitGroup` commits a stream's progress for a group")
def group_id(scene: Scene) -> str:
    group = f"group-of-{scene.connector}"
    return _joined(scene, group, **{"kafka.group.id": group})


@reads.feature("`groupIdPrefix`")
def group_id_prefix(scene: Scene) -> str:
    return _joined(
        scene, f"prefix-of-{scene.connector}", groupIdPrefix=f"prefix-of-{scene.connector}"
    )


def _joined(scene: Scene, name: str, **options: str) -> str:
    assert scene.values(subscribe=scene.topic(3), **options) == [0, 1, 2]
    found = [group for group in scene.groups() if group.startswith(name)]
    return (
        f"the broker has {len(found)} group" if found else "accepted; the broker has no such group"
    )


@reads.feature(
    "`kafkaConsumer.pollTimeoutMs`, `fetchOffset.numRetries`, `fetchOffset.retryIntervalMs`"
)
def patience(scene: Scene) -> str:
    options = {
        "kafkaConsumer.pollTimeoutMs": "30000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "10",
    }
    found = scene.values(subscribe=scene.topic(3), **options)
    return "accepted" if found == [0, 1, 2] else str(found)


@reads.feature(
    "records that are deleted, with `failOnDataLoss` `true`",
    {r"data may have been lost|offsets 0 to 3 \(4 of them\)": "refused"},
)
def deleted_records(scene: Scene) -> str:
    return f"{len(_of_deleted(scene, 'true'))} rows"


@reads.feature("the same, with `false`: 6 of 10 are left")
def deleted_records_leniently(scene: Scene) -> str:
    return f"{len(_of_deleted(scene, 'false'))} rows"


def _of_deleted(scene: Scene, fails: str) -> list[int]:
    topic = scene.topic(10)
    delete_before(scene.broker, topic, 4)
    start = json.dumps({topic: {"0": 0}})
    return scene.values(subscribe=topic, startingOffsets=start, failOnDataLoss=fails)


@reads.feature(
    "`kafka.auto.offset.reset`, `kafka.key.deserializer`, `kafka.value.deserializer`, "
    "`kafka.enable.auto.commit`, `kafka.interceptor.classes`"
)
def refused_settings(scene: Scene) -> str:
    names = ("auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit")
    taken = []
    for name in (*names, "interceptor.classes"):
        try:
            scene.read(subscribe="any", **{f"kafka.{name}": "any"})
        except PySparkException as problem:
            if "not supported" not in str(problem):
                raise
        else:
            taken.append(name)
    return f"accepted: {taken}" if taken else "refused"


@reads.feature("an unknown option")
def unknown_option(scene: Scene) -> str:
    name = f"startngOffsets.{scene.connector}"
    return _passed_over(scene, name)


@reads.feature("an unknown `kafka.` setting")
def unknown_setting(scene: Scene) -> str:
    return _passed_over(scene, f"kafka.no.such.setting.{scene.connector}")


def _passed_over(scene: Scene, name: str) -> str:
    assert scene.values(subscribe=scene.topic(2), **{name: "1"}) == [0, 1]
    logged = scene.has_logged(name.removeprefix("kafka."))
    return "ignored, with a warning" if logged else "ignored"
