"""Rows through Spark to a topic, exactly once beside at least once: their rate and their age."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.bench.broker import BrokerUnderTest
from moldau.bench.load.spark_jobs import Write
from moldau.bench.measure.spark import PARTITIONS, SMALL, rates_of, repeats, warm_up
from moldau.bench.measure.spark_latency import RATE, follow
from moldau.bench.measure.spark_process import SparkProcess, require_spark, spark_process
from moldau.bench.results import Figure, Row, Target, figure, percentile
from moldau.bench.tasks import RowFlow
from moldau.bench.workbench import Workbench

_SLOTS = 2
_OF_AT_LEAST_ONCE = Target(85, at_least=True)
# How old half of the rows may be, by what is promised of them; "" is foreachBatch.
_AGES = {"": Target(500), "exactly once": Target(150), "at least once": Target(100)}


def measure_spark_sink(bench: Workbench) -> Iterator[Row]:
    require_spark()
    with bench.broker() as broker:
        bench.say("Spark: starting")
        with spark_process(bench.children, bench.folder, _SLOTS) as spark:
            yield _sink(bench, broker, spark)
            for promise in _AGES:
                yield _latency(bench, broker, spark, promise)


def _sink(bench: Workbench, broker: BrokerUnderTest, spark: SparkProcess) -> Row:
    """Write the same rows exactly once and at least once, in turns, to a topic for each."""
    rows = bench.scale.spark_sink_rows
    jobs: list[Write] = []
    for exactly_once in (True, False):
        topic = bench.new_topic()
        broker.create_topic(topic, PARTITIONS)
        jobs.append(Write(broker.bootstrap, topic, rows, SMALL, exactly_once))
    bench.say("rows to a topic")
    writes = min(warm_up(bench, spark, *jobs), 1) + bench.scale.repeats
    flows: list[list[RowFlow]] = [[], []]
    for _ in repeats(bench):
        for job, done in zip(jobs, flows, strict=True):
            done.append(spark.flow(job))
    for job in jobs:
        # A task for each slot, and in each partition a marker that its rows are committed.
        markers = _SLOTS * PARTITIONS if job.exactly_once else 0
        broker.expect_messages(job.topic, writes * (rows + markers), PARTITIONS)
        broker.delete_topic(job.topic)
    once, at_least = flows
    shares = [100 * b.seconds / a.seconds for a, b in zip(once, at_least, strict=True)]
    return Row(
        "spark-sink",
        "rows to a topic, 100 B",
        (
            *rates_of(once, SMALL),
            figure("CPU per row", "us", [f.cpu_s * 1e6 / f.rows for f in once]),
            figure("rows at least once", "rows/s", [f.rows / f.seconds for f in at_least]),
            figure("share of at least once", "%", shares, _OF_AT_LEAST_ONCE),
        ),
    )


def _latency(bench: Workbench, broker: BrokerUnderTest, spark: SparkProcess, promise: str) -> Row:
    """From a producer, through a streaming query, to its driver or to a consumer behind it."""
    where = f"a topic, {promise}" if promise else "foreachBatch"
    runs: list[list[float]] = []
    batches: list[float] = []
    for sample in repeats(bench):
        bench.say(f"latency to {where}: sample {sample + 1} of {bench.scale.repeats}")
        followed = follow(bench, broker, spark, bench.scale.spark_latency_messages, promise)
        runs.append(followed.ages_s)
        batches += followed.batches_s
    return Row(
        "spark-sink",
        f"latency through Spark to {where}, {RATE:,} msg/s",
        (
            _share(runs, 50, _AGES[promise]),
            _share(runs, 99),
            figure("a micro-batch", "ms", [1000 * percentile(batches, 50)]),
        ),
    )


def _share(runs: list[list[float]], share: int, target: Target | None = None) -> Figure:
    return figure(f"p{share}", "ms", [1000 * percentile(ages, share) for ages in runs], target)
