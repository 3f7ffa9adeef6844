"""Kafka's own load generators, in Java, against every side."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.broker import java_words
from bench.kafka.comparison import Row, compared
from bench.kafka.sides import Bench, UnderTest
from moldau.bench.errors import BenchFailed
from moldau.bench.proc import cpu_seconds

_TOOLS = "org.apache.kafka.tools"
_JVM = ("-Xmx512m", "-server", "-XX:+UseG1GC")
_TIMEOUT_S = 300.0
_LATENCY_RATE = 1000
_SIZE = 1024
_PRODUCED = re.compile(
    r"([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency, "
    r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th"
)


def measure_java(bench: Bench) -> Iterator[Row]:
    produced: dict[str, list[tuple[float, float]]] = defaultdict(list)
    consumed: dict[str, list[tuple[float, float]]] = defaultdict(list)
    paced: dict[str, list[float]] = defaultdict(list)
    records = bench.scale.java_records
    with bench.brokers() as brokers:
        for name, broker in bench.turns("Java's perf tools", brokers):
            topic = bench.new_topic(broker)
            before = cpu_seconds(broker.pid)
            found = _produce(bench, broker, topic, records, -1)
            gigabytes = records * _SIZE / 1e9
            produced[name].append((found[0], (cpu_seconds(broker.pid) - before) / gigabytes))
            before = cpu_seconds(broker.pid)
            rate = _consume(bench, broker, topic, records)
            consumed[name].append((rate, (cpu_seconds(broker.pid) - before) / gigabytes))
            slow = bench.scale.java_latency_records
            paced[name].append(_produce(bench, broker, topic, slow, _LATENCY_RATE)[1])
            broker.delete_topic(topic)
    for title, flows in (("produce", produced), ("consume", consumed)):
        yield Row(
            "java",
            f"{title} 1 KiB with Kafka's Java {'producer' if title == 'produce' else 'consumer'}",
            (
                compared(
                    "records", "rec/s", {n: [f[0] for f in s] for n, s in flows.items()}, more=True
                ),
                compared(
                    "broker CPU per GB, start of the client included",
                    "CPU-s/GB",
                    {n: [f[1] for f in s] for n, s in flows.items()},
                ),
            ),
        )
    yield Row(
        "java",
        f"acknowledgement at {_LATENCY_RATE:,} records/s with Kafka's Java producer",
        (compared("mean latency", "ms", paced),),
    )


def _produce(
    bench: Bench, broker: UnderTest, topic: str, records: int, rate: int
) -> tuple[float, float]:
    """Records a second, and the mean latency in ms."""
    words = java_words(
        f"{_TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(_SIZE)),
        *("--throughput", str(rate), "--producer-props"),
        *(f"bootstrap.servers={broker.bootstrap}", "acks=1", "enable.idempotence=false"),
        *("batch.size=262144", f"linger.ms={0 if rate > 0 else 5}"),
        jvm=_JVM,
    )
    text = _last_line(bench, words, "50th")
    match = _PRODUCED.search(text)
    if match is None:
        raise BenchFailed(f"ProducerPerformance said {text!r}")
    return float(match[1]), float(match[3])


def _consume(bench: Bench, broker: UnderTest, topic: str, records: int) -> float:
    words = java_words(
        f"{_TOOLS}.ConsumerPerformance",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic),
        *("--messages", str(records), "--hide-header"),
        jvm=_JVM,
    )
    fields = [field.strip() for field in _last_line(bench, words, ", ").split(",")]
    if len(fields) < 10 or int(fields[4]) < records:
        raise BenchFailed(f"ConsumerPerformance said {fields}")
    # The last column leaves out what joining a group took.
    return float(fields[9])


def _last_line(bench: Bench, words: list[str], mark: str) -> str:
    """The last line with `mark` that a tool prints."""
    child = bench.children.start(words)
    last = ""
    try:
        while True:
            line = child.line(_TIMEOUT_S)
            last = line if mark in line else last
    except BenchFailed as ended:
        if not last:
            raise BenchFailed(f"{words[-1]}: {ended}") from None
    finally:
        child.stop()
    return last
