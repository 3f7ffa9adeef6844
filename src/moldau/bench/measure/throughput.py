"""Produce and consume with librdkafka at full speed, beside the limits of loopback and client."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.bench.broker import BrokerUnderTest
from moldau.bench.measure.flows import MB, client_limit, flow_figures
from moldau.bench.results import Figure, Row, Target, figure
from moldau.bench.tasks import Consume, Flow, Produce
from moldau.bench.workbench import Workbench

SMALL, LARGE = 100, 1024
_WARM_UP_SHARE = 10

_RATE_TARGETS = {SMALL: Target(3e6, at_least=True)}
_CPU_TARGETS = {LARGE: Target(0.6)}
_SHARE_TARGETS = {LARGE: Target(100 / 3, at_least=True)}


def measure_throughput(bench: Workbench) -> Iterator[Row]:
    scale = bench.scale
    with bench.broker() as broker:
        for size, total in ((SMALL, scale.small_message_bytes), (LARGE, scale.throughput_bytes)):
            yield from _at_size(bench, broker, size, total // size)


def _at_size(bench: Workbench, broker: BrokerUnderTest, size: int, count: int) -> Iterator[Row]:
    label = "100 B" if size == SMALL else "1 KiB"
    produced: list[Flow] = []
    loopback: list[float] = []
    bench.say(f"produce at {label}: warming up")
    topic = bench.new_topic()
    broker.create_topic(topic)
    _produce(bench, broker, topic, size, count // 4)
    for sample in range(bench.scale.repeats):
        bench.say(f"produce at {label}: sample {sample + 1} of {bench.scale.repeats}")
        broker.delete_topic(topic)
        broker.wait_quiet()
        loopback.append(bench.loopback_bytes_per_s())
        topic = bench.new_topic()
        broker.create_topic(topic)
        produced.append(_produce(bench, broker, topic, size, count))
    figures = flow_figures(
        produced,
        size,
        rate_target=_RATE_TARGETS.get(size),
        cpu_target=_CPU_TARGETS.get(size),
    )
    shares = _shares(produced, loopback, size)
    figures.append(figure("share of loopback", "%", shares, _SHARE_TARGETS.get(size)))
    figures.append(figure("loopback limit", "MB/s", [rate / MB for rate in loopback]))
    with bench.null_broker(size) as (address, pid):
        limits = [_produce_to(bench, address, pid, size, count) for _ in range(2)]
        figures.append(client_limit(limits))
        figures.append(_client_cost(produced))
        yield Row("throughput", f"produce {label}", tuple(figures))

        consumed: list[Flow] = []
        for sample in range(bench.scale.repeats):
            bench.say(f"consume at {label}: sample {sample + 1} of {bench.scale.repeats}")
            loopback[sample] = bench.loopback_bytes_per_s()
            task = Consume(broker.bootstrap, topic, broker.pid, count)
            consumed.append(bench.children.run(task, Flow))
        figures = flow_figures(consumed, size)
        shares = _shares(consumed, loopback, size)
        figures.append(figure("share of loopback", "%", shares))
        null_task = Consume(address, "null", pid, count)
        figures.append(client_limit([bench.children.run(null_task, Flow) for _ in range(2)]))
        figures.append(_client_cost(consumed))
    broker.delete_topic(topic)
    broker.wait_quiet()
    yield Row("throughput", f"consume {label}", tuple(figures))


def _produce(bench: Workbench, broker: BrokerUnderTest, topic: str, size: int, count: int) -> Flow:
    warm_up = count // _WARM_UP_SHARE
    task = Produce(broker.bootstrap, topic, broker.pid, size, count, warm_up=warm_up)
    flow = bench.produce(task)
    broker.expect_messages(topic, count + max(warm_up, 1))
    return flow


def _produce_to(bench: Workbench, address: str, pid: int, size: int, count: int) -> Flow:
    task = Produce(address, "null", pid, size, count, warm_up=count // _WARM_UP_SHARE)
    return bench.children.run(task, Flow)


def _shares(flows: list[Flow], loopback: list[float], size: int) -> list[float]:
    """Percent of what loopback carried just before each sample."""
    return [
        100 * flow.messages * size / flow.seconds / limit
        for flow, limit in zip(flows, loopback, strict=True)
    ]


def _client_cost(flows: list[Flow]) -> Figure:
    return figure(
        "client CPU per message", "us", [f.client_cpu_s * 1e6 / f.messages for f in flows]
    )
