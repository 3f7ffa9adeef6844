"""Spark's own connector beside ours: rows into results, latency from topic to topic, and memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version

import msgspec

from bench.kafka.comparison import MOLDAU, Compared, Row, compared
from bench.kafka.jars import connector_jars
from bench.kafka.sides import Bench, UnderTest
from moldau.bench.load.spark_jobs import Followed, Read, Result
from moldau.bench.measure.spark import LABELS, LARGE, SMALL
from moldau.bench.measure.spark_latency import RATE, follow
from moldau.bench.measure.spark_process import SparkProcess, require_spark, spark_process
from moldau.bench.results import percentile
from moldau.bench.tasks import Flow, Produce, RowFlow

_PARTITIONS = 4
_SLOTS = 2
OURS, THEIRS = "our source", "Spark's connector"
_FORMATS = {OURS: "moldau", THEIRS: "kafka"}
_ON_MOLDAU, _ON_KAFKA = f"{THEIRS} on {MOLDAU}", f"{THEIRS} on Kafka"
# What is read, and by how many times ours has to be faster.
_READS: tuple[tuple[Result, int, float | None], ...] = (
    ("count", SMALL, 2.0),
    ("parquet", SMALL, 2.0),
    ("delta", SMALL, None),
    ("iceberg", SMALL, None),
    ("count", LARGE, 2.0),
    ("delta", LARGE, None),
)
_RESULTS: dict[Result, str] = {
    "count": "a count",
    "aggregation": "an aggregation",
    "parquet": "Spark's Parquet",
    "delta": "a Delta table",
    "iceberg": "an Iceberg table",
}
_LATENCIES = {
    MOLDAU: ("at least once", "moldau"),
    "the same exactly once": ("exactly once", "moldau"),
    _ON_MOLDAU: ("at least once", "kafka"),
}


def measure_spark(bench: Bench) -> Iterator[Row]:
    require_spark()
    connector, paths = connector_jars(version("pyspark"))
    jars = ",".join(map(str, paths))
    note = f"The column {MOLDAU} is our source on Moldau. {THEIRS}: {connector}."
    with bench.brokers() as brokers:
        # The tuned Kafka is the better of the two, and Spark needs room.
        ours, kafka = brokers[MOLDAU], brokers[bench.sides[-1].name]
        small = _filled(bench, ours, SMALL)
        with spark_process(bench.children, bench.new_folder(), _SLOTS, jars) as spark:
            yield from _aggregation(bench, spark, small, _filled(bench, kafka, SMALL), note)
            large = _filled(bench, ours, LARGE)
            for into, size, goal in _READS:
                job = _into(small if size == SMALL else large, into)
                ways = {MOLDAU: _by(job, OURS), _ON_MOLDAU: _by(job, THEIRS)}
                flows = _turns(bench, spark, ways)
                yield Row("spark", _title(job), _rates(flows, goal), note)
            yield _latency(bench, spark, ours, note)
        yield _memory(bench, _into(small, "aggregation"), jars, note)


def _filled(bench: Bench, broker: UnderTest, size: int) -> Read:
    """Fill a topic, and return a job that counts it."""
    rows = bench.scale.spark_rows if size == SMALL else bench.scale.spark_rows // 4
    topic = bench.new_topic(broker, _PARTITIONS)
    task = Produce(broker.bootstrap, topic, broker.pid, size, rows - 1, partitions=_PARTITIONS)
    bench.children.run(task, Flow)
    return Read(broker.bootstrap, topic, rows, size, _PARTITIONS, "count")


def _into(job: Read, into: Result) -> Read:
    return msgspec.structs.replace(job, into=into)


def _by(job: Read, source: str, *, watch_memory: bool = False) -> Read:
    """Return the same job for that source."""
    return msgspec.structs.replace(job, source=_FORMATS[source], watch_memory=watch_memory)


def _title(job: Read) -> str:
    return f"rows of {LABELS[job.size]} into {_RESULTS[job.into]}"


def _turns(bench: Bench, spark: SparkProcess, ways: dict[str, Read]) -> dict[str, list[RowFlow]]:
    """Every way in turn, after one of each that does not count."""
    flows: dict[str, list[RowFlow]] = defaultdict(list)
    for sample in range(bench.scale.repeats + 1):
        for name, job in ways.items():
            bench.say(f"Spark: {_title(job)}, {name}, {sample} of {bench.scale.repeats}")
            flow = spark.flow(job)
            if sample > 0:
                flows[name].append(flow)
    return flows


def _rates(flows: dict[str, list[RowFlow]], goal: float | None = None) -> tuple[Compared, Compared]:
    per_s = {name: [flow.rows / flow.seconds for flow in some] for name, some in flows.items()}
    cpu = {name: [flow.cpu_s * 1e6 / flow.rows for flow in some] for name, some in flows.items()}
    return (
        compared("rows", "rows/s", per_s, more=True, goal=goal),
        compared("CPU of Spark and its workers", "us/row", cpu),
    )


def _aggregation(
    bench: Bench, spark: SparkProcess, on_moldau: Read, on_kafka: Read, note: str
) -> Iterator[Row]:
    """Both sources from both brokers, in turns."""
    there, elsewhere = _into(on_moldau, "aggregation"), _into(on_kafka, "aggregation")
    our_source_on_kafka = f"{OURS} on Kafka"
    flows = _turns(
        bench,
        spark,
        {
            MOLDAU: _by(there, OURS),
            our_source_on_kafka: _by(elsewhere, OURS),
            _ON_MOLDAU: _by(there, THEIRS),
            _ON_KAFKA: _by(elsewhere, THEIRS),
        },
    )
    beside = {name: flows[name] for name in (MOLDAU, _ON_MOLDAU, _ON_KAFKA)}
    yield Row("spark", _title(there), _rates(beside, 2.0), note)
    ours = {name: flows[name] for name in (MOLDAU, our_source_on_kafka)}
    yield Row("spark", f"{_title(there)}, by our source from both brokers", _rates(ours))


def _latency(bench: Bench, spark: SparkProcess, broker: UnderTest, note: str) -> Row:
    runs: dict[str, list[Followed]] = defaultdict(list)
    for sample in range(bench.scale.repeats):
        for name, (promise, connector) in _LATENCIES.items():
            bench.say(f"Spark: latency, {name}, {sample + 1} of {bench.scale.repeats}")
            count = bench.scale.latency_messages
            runs[name].append(follow(bench.machine, broker, spark, count, promise, connector))

    def share_of(share: int, times: dict[str, list[list[float]]]) -> dict[str, list[float]]:
        return {
            name: [1000 * percentile(each, share) for each in some] for name, some in times.items()
        }

    ages = {name: [each.ages_s for each in some] for name, some in runs.items()}
    batches = {name: [each.batches_s for each in some] for name, some in runs.items()}
    return Row(
        "spark",
        f"latency from topic to topic through Spark, {RATE:,} msg/s",
        (
            compared("p50", "ms", share_of(50, ages)),
            compared("p99", "ms", share_of(99, ages)),
            compared("a micro-batch, p50", "ms", share_of(50, batches)),
        ),
        f"{note} At least once, but for the second column. All in one session, without a trigger.",
    )


def _memory(bench: Bench, job: Read, jars: str, note: str) -> Row:
    """The same in a Spark for each: what one of them needs stays with Java."""
    highest: dict[str, list[float]] = {}
    for name, source in ((MOLDAU, OURS), (_ON_MOLDAU, THEIRS)):
        bench.say(f"Spark: memory, {name}")
        with spark_process(bench.children, bench.new_folder(), _SLOTS, jars) as spark:
            flows = [
                spark.flow(_by(job, source, watch_memory=True))
                for _ in range(bench.scale.repeats + 1)
            ]
        highest[name] = [max(flow.memory_mib for flow in flows)]
    return Row(
        "spark",
        f"memory of Spark and its workers, {_title(job)}",
        (compared("at its most", "MiB", highest),),
        f"{note} The driver's heap may have 1 GiB.",
    )
