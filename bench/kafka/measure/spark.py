"""Rows a second into Spark: both sources, from both brokers, in one session."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec

import msgspec

from bench.kafka.comparison import MOLDAU, Row, compared
from bench.kafka.jars import connector_jars
from bench.kafka.sides import Bench
from moldau.bench.errors import Unavailable
from moldau.bench.tasks import Flow, Produce

_SIZE = 100
_PARTITIONS = 4
_START_WITHIN_S = 180.0
_JOB_WITHIN_S = 600.0
_END_WITHIN_S = 60.0
OURS, THEIRS = "our source", "Spark's connector"
_FORMATS = {OURS: "moldau", THEIRS: "kafka"}


class ReadJob(msgspec.Struct, frozen=True):
    """Aggregate the `rows` of a topic that is read with the source `format`."""

    format: str
    bootstrap: str
    topic: str
    rows: int


class RowRate(msgspec.Struct, frozen=True):
    rows_per_s: float
    cpu_us_per_row: float


def measure_spark(bench: Bench) -> Iterator[Row]:
    missing = [name for name in ("pyspark", "pyarrow", "numba") if find_spec(name) is None]
    if missing:
        raise Unavailable(f"{' and '.join(missing)} not installed: pip install 'moldau[spark]'")
    connector, jars = connector_jars(version("pyspark"))
    rates: dict[str, list[RowRate]] = defaultdict(list)
    rows = bench.scale.spark_rows
    with bench.brokers() as brokers:
        # The tuned Kafka is the better of the two, and Spark needs room.
        chosen = {MOLDAU: brokers[MOLDAU], "Kafka": brokers[bench.sides[-1].name]}
        topics = {}
        for name, broker in chosen.items():
            topics[name] = bench.new_topic(broker, _PARTITIONS)
            task = Produce(
                broker.bootstrap, topics[name], broker.pid, _SIZE, rows - 1, partitions=_PARTITIONS
            )
            bench.children.run(task, Flow)
        words = [sys.executable, "-m", "bench.kafka.spark_load", str(bench.new_folder())]
        spark = bench.children.start([*words, ",".join(map(str, jars))])
        try:
            spark.line(_START_WITHIN_S)
            for sample in range(bench.scale.repeats + 1):
                for source, form in _FORMATS.items():
                    for name, broker in chosen.items():
                        bench.say(f"Spark: {source} on {name}, {sample} of {bench.scale.repeats}")
                        job = ReadJob(form, broker.bootstrap, topics[name], rows)
                        spark.say(msgspec.json.encode(job).decode())
                        rate = spark.answer(RowRate, _JOB_WITHIN_S)
                        if sample > 0:
                            rates[f"{source} on {name}"].append(rate)
        finally:
            spark.close_input()
            spark.line(_END_WITHIN_S)
            spark.stop()
    # Our source on Moldau against each of the other three ways.
    names = {f"{OURS} on {MOLDAU}": MOLDAU}
    by_name = {names.get(way, way): some for way, some in rates.items()}
    yield Row(
        "spark",
        "rows of 100 B into an aggregation",
        (
            compared(
                "rows",
                "rows/s",
                {way: [rate.rows_per_s for rate in some] for way, some in by_name.items()},
                more=True,
            ),
            compared(
                "CPU of Spark and its workers",
                "us/row",
                {way: [rate.cpu_us_per_row for rate in some] for way, some in by_name.items()},
            ),
        ),
        note=f"The column {MOLDAU} is our source on Moldau. Spark's connector: {connector}.",
    )
