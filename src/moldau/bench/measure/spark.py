"""Topics through Spark, beside a source that yields ready-made rows: what ours costs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import msgspec

from moldau.bench.broker import BrokerUnderTest
from moldau.bench.load.spark_jobs import RESULTS, Job, Read, Result
from moldau.bench.measure.spark_process import SparkProcess, require_spark, spark_process
from moldau.bench.results import Figure, Row, Target, figure
from moldau.bench.tasks import Produce, RowFlow
from moldau.bench.workbench import Workbench

SMALL, LARGE = 100, 1024
LABELS = {SMALL: "100 B", LARGE: "1 KiB"}
_SLOTS = {1: "one slot", 2: "two slots"}
# Half as many tasks again as slots would leave one of them idle in the end.
PARTITIONS = 4

_OF_CEILING = Target(80, at_least=True)
# With two slots on two cores.
_TO_DELTA = {SMALL: Target(1_000_000, at_least=True), LARGE: Target(450_000, at_least=True)}


def measure_spark(bench: Workbench) -> Iterator[Row]:
    require_spark()
    contests: dict[tuple[int, int, Result], _Contest] = {}
    with bench.broker() as broker:
        topics = {size: _topic_of(bench, broker, size) for size in bench.scale.spark_sizes}
        for slots, name in _SLOTS.items():
            bench.say(f"Spark with {name}: starting")
            with spark_process(bench.children, bench.folder, slots) as spark:
                # Where nothing is repeated, nobody looks at the figures: one result is enough.
                is_looked_at = bench.scale.repeats > 1 or slots == max(_SLOTS)
                results = RESULTS if is_looked_at else RESULTS[:1]
                for (size, (topic, rows)), result in product(topics.items(), results):
                    job = Read(broker.bootstrap, topic, rows, size, PARTITIONS, result)
                    contest = _contest(bench, spark, job, slots)
                    contests[slots, size, result] = contest
                    yield _row(contest, job, slots)
                if slots == max(_SLOTS):
                    yield _spreads(bench, broker, spark)
    yield _scaling(contests[1, SMALL, "count"], contests[2, SMALL, "count"])


def _topic_of(bench: Workbench, broker: BrokerUnderTest, size: int) -> tuple[str, int]:
    return filled(bench, broker, bench.scale.spark_bytes // size, size, PARTITIONS)


class _Contest(NamedTuple):
    """The same result from our source and from ready-made rows."""

    ours: list[RowFlow]
    ready_made: list[RowFlow]


def _title(job: Read, slots: int) -> str:
    return f"topic to {job.into}, {LABELS[job.size]}, {_SLOTS[slots]}"


def _contest(bench: Workbench, spark: SparkProcess, job: Read, slots: int) -> _Contest:
    contest = _Contest([], [])
    ready_made = msgspec.structs.replace(job, is_ceiling=True)
    warm_up(bench, spark, ready_made, job)
    for sample in repeats(bench):
        bench.say(f"{_title(job, slots)}: sample {sample + 1} of {bench.scale.repeats}")
        contest.ready_made.append(spark.flow(ready_made))
        contest.ours.append(spark.flow(job))
    return contest


def _row(contest: _Contest, job: Read, slots: int) -> Row:
    ours, ready_made = contest
    shares = [100 * b.seconds / a.seconds for a, b in zip(ours, ready_made, strict=True)]
    is_goal = job.into == "delta" and slots == max(_SLOTS)
    target = _TO_DELTA[job.size] if is_goal else None
    cpu_shares = [100 * b.cpu_s / a.cpu_s for a, b in zip(ours, ready_made, strict=True)]
    return Row(
        "spark",
        _title(job, slots),
        (
            *rates_of(ours, job.size, target),
            figure("ready-made rows", "rows/s", [f.rows / f.seconds for f in ready_made]),
            figure("share of ready-made", "%", shares, _OF_CEILING),
            figure("share of ready-made by CPU", "%", cpu_shares),
            figure("CPU per row", "us", [f.cpu_s * 1e6 / f.rows for f in ours]),
        ),
    )


def _spreads(bench: Workbench, broker: BrokerUnderTest, spark: SparkProcess) -> Row:
    """Measure the same rows in few partitions and in many."""
    rates: list[Figure] = []
    for partitions in bench.scale.spark_spreads:
        topic, rows = filled(bench, broker, bench.scale.spark_bytes // SMALL, SMALL, partitions)
        bench.say(f"topic with {partitions} partitions")
        job = Read(broker.bootstrap, topic, rows, SMALL, partitions, "count")
        warm_up(bench, spark, job)
        flows = [spark.flow(job) for _ in repeats(bench)]
        plural = "partition" if partitions == 1 else "partitions"
        rates.append(
            figure(f"{partitions} {plural}", "rows/s", [f.rows / f.seconds for f in flows])
        )
        broker.delete_topic(topic)
    return Row("spark", "topic to count, 100 B, by partitions", tuple(rates))


def _scaling(one: _Contest, two: _Contest) -> Row:
    """Measure the gain from a second slot; each number of slots needs its own Spark."""

    def gain(of_one: list[float], of_two: list[float]) -> list[float]:
        return [b / a for a, b in zip(of_one, of_two, strict=True)]

    def rates(flows: list[RowFlow]) -> list[float]:
        return [flow.rows / flow.seconds for flow in flows]

    ready_made = gain(rates(one.ready_made), rates(two.ready_made))
    return Row(
        "spark",
        "topic to count, 100 B, by slots",
        (
            figure("one slot", "rows/s", rates(one.ours)),
            figure("two slots", "rows/s", rates(two.ours)),
            figure("two slots to one", "x", gain(rates(one.ours), rates(two.ours))),
            figure("the same, ready-made rows", "x", ready_made),
        ),
    )


def filled(
    bench: Workbench, broker: BrokerUnderTest, messages: int, size: int, partitions: int
) -> tuple[str, int]:
    """Return a new topic with about that many messages, evenly spread; its name, and how many it
    has."""
    topic = bench.new_topic()
    broker.create_topic(topic, partitions)
    bench.say(f"writing {messages:,} messages of {LABELS[size]}")
    per_turn = max(1, min(10_000, messages // partitions))
    task = Produce(
        broker.bootstrap, topic, broker.pid, size, messages, partitions, per_turn=per_turn
    )
    bench.produce(task)
    return topic, broker.messages_in(topic, partitions)


def warm_up(bench: Workbench, spark: SparkProcess, *jobs: Job) -> int:
    """Do jobs once untimed, as the first of its kind compiles, in Java and in Python; how many.

    Where nothing is repeated, nobody looks at the figures.
    """
    if bench.scale.repeats == 1:
        return 0
    for job in jobs:
        spark.flow(job)
    return len(jobs)


def repeats(bench: Workbench) -> range:
    return range(bench.scale.repeats)


def rates_of(
    flows: list[RowFlow], size: int, target: Target | None = None
) -> tuple[Figure, Figure]:
    return (
        figure("rows", "rows/s", [f.rows / f.seconds for f in flows], target),
        figure("payload", "MB/s", [f.rows * size / f.seconds / 1e6 for f in flows]),
    )
