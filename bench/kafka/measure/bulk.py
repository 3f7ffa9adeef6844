"""Produce and consume with clients that cost next to nothing: what the brokers can do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Row
from bench.kafka.measure.throughput import LARGE, SMALL, flow_comparison
from bench.kafka.sides import Bench, UnderTest
from bench.tasks import BulkFetch, BulkProduce
from moldau.bench.tasks import Flow

_NOTE = (
    "Batches of 1 MB, built once and sent over a bare socket; what is fetched is received and not"
    " looked into."
)


def measure_bulk(bench: Bench) -> Iterator[Row]:
    with bench.brokers() as brokers:
        for size in (SMALL, LARGE):
            yield from _at_size(bench, brokers, size, bench.scale.bulk_bytes // size)


def _at_size(bench: Bench, brokers: dict[str, UnderTest], size: int, count: int) -> Iterator[Row]:
    label = "100 B" if size == SMALL else "1 KiB"
    produced: dict[str, list[Flow]] = defaultdict(list)
    consumed: dict[str, list[Flow]] = defaultdict(list)
    for name, broker in brokers.items():
        # A virtual machine that compiles as it runs must not be timed cold.
        bench.say(f"warming up {name} with batches of {label}")
        _sample(bench, broker, size, count // 2)
    for name, broker in bench.turns(f"bulk at {label}", brokers):
        broker.wait_quiet()
        produce, fetch = _sample(bench, broker, size, count)
        produced[name].append(produce)
        consumed[name].append(fetch)
    yield Row("bulk", f"produce ready batches of {label}", flow_comparison(produced, size), _NOTE)
    yield Row("bulk", f"fetch {label} unread", flow_comparison(consumed, size), _NOTE)


def _sample(bench: Bench, broker: UnderTest, size: int, count: int) -> tuple[Flow, Flow]:
    topic = bench.new_topic(broker)
    produce = BulkProduce(broker.host, broker.port, topic, broker.pid, size, count)
    # A third goes first.
    with bench.machine.warm_memory(count * (size + 12) * 4 // 3, broker.pid):
        produced = bench.children.run(produce, Flow)
    fetch = BulkFetch(broker.host, broker.port, topic, broker.pid, count)
    fetched = bench.children.run(fetch, Flow)
    broker.delete_topic(topic)
    return produced, fetched
