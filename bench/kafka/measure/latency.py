"""Latency: how old a message is when a consumer gets it, at a thousand messages a second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Row, compared
from bench.kafka.sides import Bench, UnderTest
from moldau.bench.results import percentile
from moldau.bench.tasks import Ages, ConsumeStamped, ProduceStamped

RATE = 1000
_MESSAGE_SIZE = 100
_SHARES = (50, 99, 99.9)
_GOALS = {99: 2.0}


def measure_latency(bench: Bench) -> Iterator[Row]:
    runs: dict[str, list[list[float]]] = defaultdict(list)
    with bench.brokers() as brokers:
        for name, broker in brokers.items():
            bench.say(f"latency: warming up {name}")
            _ages(bench, broker)
        for name, broker in bench.turns("latency", brokers):
            runs[name].append(_ages(bench, broker))
    yield Row(
        "latency",
        f"end to end at {RATE:,} msg/s",
        tuple(
            compared(
                f"p{share:g}",
                "ms",
                {name: [percentile(a, share) * 1000 for a in ages] for name, ages in runs.items()},
                goal=_GOALS.get(int(share)) if share == int(share) else None,
            )
            for share in _SHARES
        ),
    )


def _ages(bench: Bench, broker: UnderTest) -> list[float]:
    count = bench.scale.latency_messages
    topic = bench.new_topic(broker)
    consumer = bench.children.begin(
        ConsumeStamped(broker.bootstrap, topic, count, min(500, count // 4))
    )
    consumer.line(timeout_s=30)
    producer = bench.children.begin(
        ProduceStamped(broker.bootstrap, topic, _MESSAGE_SIZE, RATE, count)
    )
    ages = consumer.answer(Ages, timeout_s=60 + 2 * count / RATE).seconds
    producer.stop()
    consumer.stop()
    broker.delete_topic(topic)
    return ages
