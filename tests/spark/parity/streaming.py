"""Features of streams: their starts, limits, triggers, reports and checkpoints."""

from __future__ import annotations

import json

from moldau.spark.source.progress import is_topic
from tests.spark.parity.feature import WORKS, Part, as_expected
from tests.spark.parity.scene import OWN, Running, Scene
from tests.spark.topics import add_partitions, fresh_topic, read_by_librdkafka

FIRST_MS = 1_700_000_000_000
# So that Spark's own source does not wait a second each time before it asks again.
QUICKLY = {"fetchOffset.retryIntervalMs": "10"}

streams = Part("Topics as streams")


@streams.feature("`trigger(processingTime=...)`, from `latest`")
def from_latest(scene: Scene) -> str:
    topic = scene.topic(3)
    frame = scene.stream(subscribe=topic, startingOffsets="latest")
    with scene.running(frame, processingTime="50 milliseconds") as running:
        running.until(lambda: running.source.get("endOffset"), "the first batch")
        scene.add(topic, 3, 2)
        running.until(lambda: running.batches, "what was added")
    return as_expected(running.batches, [[3, 4]])


@streams.feature("`startingOffsets` by partition")
def from_offsets(scene: Scene) -> str:
    topic = scene.topic(5, 2)
    start = json.dumps({topic: {"0": 3, "1": -1}})
    return as_expected(scene.run(scene.stream(subscribe=topic, startingOffsets=start)), [[3, 4]])


@streams.feature("`startingTimestamp`")
def from_timestamp(scene: Scene) -> str:
    topic = scene.topic(5, first_ms=FIRST_MS)
    frame = scene.stream(subscribe=topic, startingTimestamp=str(FIRST_MS + 3))
    return as_expected(scene.run(frame), [[3, 4]])


@streams.feature(
    "`endingOffsets`", {"not valid in streaming queries|is for batch queries": "refused"}
)
def to_an_end(scene: Scene) -> str:
    return str(scene.run(scene.stream(subscribe=scene.topic(3), endingOffsets="latest")))


@streams.feature("`trigger(availableNow=True)`, with `maxOffsetsPerTrigger` 4, of 10")
def max_offsets(scene: Scene) -> str:
    batches = scene.run(scene.stream(subscribe=scene.topic(10), maxOffsetsPerTrigger="4"))
    return _sizes(batches)


@streams.feature("`minOffsetsPerTrigger` 5, when 3 are there, 2 come, and 3 more")
def min_offsets(scene: Scene) -> str:
    topic = scene.topic(3)
    frame = scene.stream(subscribe=topic, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    with scene.running(frame) as running:
        running.until(lambda: running.batches, "the first batch")
        scene.add(topic, 3, 2)
        running.until(lambda: _latest(running) == {topic: {"0": 5}}, "a report of those that came")
        scene.add(topic, 5, 3)
        running.until(lambda: sum(map(len, running.batches)) == 8, "all")
    return _sizes(running.batches)


@streams.feature("`maxTriggerDelay`, when too few come")
def max_delay(scene: Scene) -> str:
    topic = scene.topic(3)
    frame = scene.stream(subscribe=topic, minOffsetsPerTrigger="5", maxTriggerDelay="1s")
    with scene.running(frame) as running:
        running.until(lambda: running.batches, "the first batch")
        scene.add(topic, 3, 2)
        running.until(lambda: len(running.batches) > 1, "the second batch")
    return as_expected(running.batches, [[0, 1, 2], [3, 4]])


def _sizes(batches: list[list[int]]) -> str:
    return f"batches of {', '.join(str(len(batch)) for batch in batches)}"


def _latest(running: Running) -> object:
    offset = running.source.get("latestOffset")
    content = json.loads(offset) if isinstance(offset, str) else offset
    # Ours has the ids of the topics, too.
    return {name: each for name, each in (content or {}).items() if is_topic(name)}


@streams.feature("a partition that is added")
def added_partition(scene: Scene) -> str:
    topic, checkpoint = scene.topic(2), scene.checkpoint()
    scene.run(scene.stream(subscribe=topic), checkpoint)
    add_partitions(scene.broker, topic, 2)
    scene.add(topic, 100, 2, partition=1)
    return as_expected(scene.run(scene.stream(subscribe=topic), checkpoint), [[100, 101]])


STOPS = "stops the query"
_GONE = {
    "UnknownTopicOrPartition|are gone|is gone": STOPS,
    "deleted and created again": STOPS,
}


@streams.feature("one of two topics is deleted", _GONE)
def deleted_topic(scene: Scene) -> str:
    return _without_a_topic(scene, subscribe=",".join(scene.one_deleted.topics))


@streams.feature("the same, with `failOnDataLoss` `false`", _GONE)
def deleted_topic_leniently(scene: Scene) -> str:
    topics = ",".join(scene.one_deleted.topics)
    return _without_a_topic(scene, subscribe=topics, failOnDataLoss="false")


@streams.feature("the same, with `failOnDataLoss` `false` and `subscribePattern`", _GONE)
def deleted_match_leniently(scene: Scene) -> str:
    topics = "|".join(scene.one_deleted.topics)
    return _without_a_topic(scene, subscribePattern=f"^({topics})$", failOnDataLoss="false")


def _without_a_topic(scene: Scene, **options: str) -> str:
    found = scene.run(scene.stream(**options, **QUICKLY), scene.one_deleted.checkpoint())
    return "goes on" if found == [[2, 3]] else f"reads {found}"


@streams.feature("a topic is deleted and created again, with more records than before", _GONE)
def recreated_topic(scene: Scene) -> str:
    return _recreated(scene, "true")


@streams.feature("created again, with `failOnDataLoss` `false`", _GONE)
def recreated_topic_leniently(scene: Scene) -> str:
    return _recreated(scene, "false")


def _recreated(scene: Scene, fails: str) -> str:
    (topic,) = scene.recreated.topics
    frame = scene.stream(subscribe=topic, failOnDataLoss=fails, **QUICKLY)
    found = scene.run(frame, scene.recreated.checkpoint())
    if found == [[10, 11, 12, 13, 14]]:
        return "reads the new one from its start"
    return "reads on at the old offset" if found == [[13, 14]] else f"reads {found}"


@streams.feature("a checkpoint of the other connector, and back")
def others_checkpoint(scene: Scene) -> str:
    topic, checkpoint = fresh_topic(scene.broker), scene.checkpoint()
    found = []
    for turn, connector in enumerate((scene.other, scene.connector, scene.other)):
        scene.add(topic, 2 * turn, 2)
        found += scene.run(scene.stream(connector, subscribe=topic), checkpoint)
    return as_expected(found, [[0, 1], [2, 3], [4, 5]])


@streams.feature("`trigger(once=True)`, with `maxOffsetsPerTrigger` 4, of 10")
def once(scene: Scene) -> str:
    frame = scene.stream(subscribe=scene.topic(10), maxOffsetsPerTrigger="4")
    with scene.running(frame, once=True) as running:
        running.query.awaitTermination()
    return _sizes(running.batches)


@streams.feature(
    "`trigger(continuous=...)`",
    {"does not support continuous processing|CONTINUOUS_SCAN_NOT_SUPPORTED": "refused"},
    denied=True,
)
def continuous(scene: Scene) -> str:
    frame = scene.stream(subscribe=scene.topic(3)).select("value")
    running = scene.in_memory(frame, "append", continuous="100 milliseconds")
    return _rows_arrive(scene, running)


@streams.feature(
    "`trigger(realTime=...)`",
    {"INPUT_STREAM_NOT_SUPPORTED": "refused"},
    denied=True,
    note="[more](#latency)",
)
def real_time(scene: Scene) -> str:
    return in_real_time(scene, scene.connector, OWN)


def in_real_time(scene: Scene, source: str, sink: str) -> str:
    """Copy a topic in real-time mode, where the source or the sink is that of the trial."""
    topic, target = scene.topic(3), fresh_topic(scene.broker)
    frame = scene.stream(source, subscribe=topic).select("value")
    running = scene.write_stream(frame, "update", target, sink, realTime="1 second")
    try:
        running.until(lambda: len(read_by_librdkafka(scene.broker, target)) == 3, "all rows")
    finally:
        running.query.stop()
    return WORKS


def _rows_arrive(scene: Scene, running: Running) -> str:
    table = running.query.name
    try:
        running.until(lambda: scene.spark.table(table).count() == 3, "all rows")
    finally:
        running.query.stop()
    return WORKS


@streams.feature("lag in Spark's reports", denied=True, note="[`LagListener`](#lag)")
def lag(scene: Scene) -> str:
    _, source = scene.reported
    names = sorted(name for name in source.get("metrics") or {} if "OffsetsBehindLatest" in name)
    return ", ".join(f"`{name}`" for name in names) or "none"


@streams.feature("the latest offset in Spark's reports, after 4 of 10")
def latest_offset(scene: Scene) -> str:
    topic, source = scene.reported
    offset = source["latestOffset"]
    found = json.loads(offset) if isinstance(offset, str) else offset
    return str(found[topic]["0"])


@streams.feature("the source in Spark's reports", denied=True, note="[`LagListener`](#lag)")
def description(scene: Scene) -> str:
    topic, source = scene.reported
    return "has its topics" if topic in source["description"] else "without its topics"
