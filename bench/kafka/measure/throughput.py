"""Produce and consume with librdkafka at full speed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from bench.kafka.comparison import Compared, Row, compared
from bench.kafka.sides import Bench, UnderTest
from moldau.bench.results import number
from moldau.bench.tasks import Consume, Flow, Produce

SMALL, LARGE = 100, 1024
_WARM_UP_SHARE = 10
_GOAL_RATE = 1.5
_GOAL_CPU = 2.0


def measure_throughput(bench: Bench) -> Iterator[Row]:
    with bench.brokers() as brokers:
        for size, total in ((SMALL, bench.scale.small_bytes), (LARGE, bench.scale.large_bytes)):
            yield from _at_size(bench, brokers, size, total // size)


def _at_size(bench: Bench, brokers: dict[str, UnderTest], size: int, count: int) -> Iterator[Row]:
    label = "100 B" if size == SMALL else "1 KiB"
    produced: dict[str, list[Flow]] = defaultdict(list)
    consumed: dict[str, list[Flow]] = defaultdict(list)
    on_one_core: dict[str, list[Flow]] = defaultdict(list)
    for name, broker in brokers.items():
        # A virtual machine that compiles as it runs must not be timed cold.
        bench.say(f"warming up {name} at {label}")
        topic = bench.new_topic(broker)
        _produce(bench, broker, topic, size, count // 2)
        bench.children.run(Consume(broker.bootstrap, topic, broker.pid, count // 2), Flow)
        broker.delete_topic(topic)
    for name, broker in bench.turns(f"throughput at {label}", brokers):
        broker.wait_quiet()
        topic = bench.new_topic(broker)
        produced[name].append(_produce(bench, broker, topic, size, count))
        task = Consume(broker.bootstrap, topic, broker.pid, count)
        consumed[name].append(bench.children.run(task, Flow))
        pinned = msgspec.structs.replace(task, is_on_one_core=True)
        on_one_core[name].append(bench.children.run(pinned, Flow))
        broker.delete_topic(topic)
    with bench.machine.null_broker(size) as (address, pid):
        bench.say(f"throughput at {label}: librdkafka alone")
        most = bench.children.run(Produce(address, "null", pid, size, count), Flow)
        yield _row(f"produce {label}", produced, size, most)
        null = Consume(address, "null", pid, count)
        most = bench.children.run(null, Flow)
        yield _row(f"consume {label}", consumed, size, most)
        most = bench.children.run(msgspec.structs.replace(null, is_on_one_core=True), Flow)
        yield _row(f"consume {label}, the client on one core", on_one_core, size, most)


def _row(title: str, flows: dict[str, list[Flow]], size: int, most: Flow) -> Row:
    note = (
        f"The client is part of this: against a broker that does nothing, librdkafka itself goes"
        f" through {number(most.messages / most.seconds)} msg/s."
    )
    return Row("throughput", title, flow_comparison(flows, size), note)


def _produce(bench: Bench, broker: UnderTest, topic: str, size: int, count: int) -> Flow:
    warm_up = max(1, count // _WARM_UP_SHARE)
    task = Produce(broker.bootstrap, topic, broker.pid, size, count, warm_up=warm_up)
    flow = bench.machine.produce(task)
    broker.expect_messages(topic, count + warm_up)
    return flow


def flow_comparison(flows: dict[str, list[Flow]], size: int) -> tuple[Compared, ...]:
    """Messages and megabytes a second, and what a gigabyte costs the broker."""

    def each(figure: str) -> dict[str, list[float]]:
        return {
            name: [_FIGURES[figure](flow, size) for flow in some] for name, some in flows.items()
        }

    return (
        compared("messages", "msg/s", each("messages"), more=True, goal=_GOAL_RATE),
        compared("payload", "MB/s", each("payload"), more=True, goal=_GOAL_RATE),
        compared("broker CPU per GB", "CPU-s/GB", each("cpu"), goal=_GOAL_CPU),
        compared("client CPU per message", "us", each("client")),
    )


_FIGURES = {
    "messages": lambda flow, size: flow.messages / flow.seconds,
    "payload": lambda flow, size: flow.messages * size / flow.seconds / 1e6,
    "cpu": lambda flow, size: flow.broker_cpu_s / (flow.messages * size / 1e9),
    "client": lambda flow, size: flow.client_cpu_s * 1e6 / flow.messages,
}
