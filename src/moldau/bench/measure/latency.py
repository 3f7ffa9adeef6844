"""Latency: the age of a message when a consumer gets it, at a thousand messages per second."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.bench.results import Row, Target, figure, percentile
from moldau.bench.tasks import Ages, ConsumeStamped, ProduceStamped
from moldau.bench.workbench import Workbench

RATE = 1000
_MESSAGE_SIZE = 100
_WARM_UP = 500


def measure_latency(bench: Workbench) -> Iterator[Row]:
    count = bench.scale.latency_messages
    warm_up = min(_WARM_UP, count // 4)
    runs: list[list[float]] = []
    with bench.broker() as broker:
        for sample in range(bench.scale.repeats):
            bench.say(f"latency: sample {sample + 1} of {bench.scale.repeats}")
            topic = bench.new_topic()
            broker.create_topic(topic)
            consumer = bench.children.begin(ConsumeStamped(broker.bootstrap, topic, count, warm_up))
            consumer.line(timeout_s=30)
            producer = bench.children.begin(
                ProduceStamped(broker.bootstrap, topic, _MESSAGE_SIZE, RATE, count)
            )
            runs.append(consumer.answer(Ages, timeout_s=30 + 2 * count / RATE).seconds)
            producer.stop()
            consumer.stop()
            broker.delete_topic(topic)
    targets = {99: Target(1.0)}
    yield Row(
        "latency",
        f"end to end at {RATE:,} msg/s",
        tuple(
            figure(
                f"p{share:g}",
                "ms",
                [percentile(ages, share) * 1000 for ages in runs],
                targets.get(int(share)) if share == int(share) else None,
            )
            for share in (50, 99, 99.9)
        ),
    )
