"""Share groups (KIP-932): many members on one partition, acknowledgements, and how soon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Row, compared
from bench.kafka.measure.groups import wait_for_coordinator
from bench.kafka.measure.latency import RATE
from bench.kafka.measure.requests import request_comparison
from bench.kafka.measure.throughput import flow_comparison
from bench.kafka.sides import Bench, UnderTest
from bench.tasks import ShareAcknowledgements, ShareStamped, ShareTopic
from moldau.bench.results import percentile
from moldau.bench.tasks import Ages, Flow, Produce, ProduceStamped, RequestFlow
from moldau.client.queue.beginning import begin_at

_SIZE = 100
_BATCH = 100
_CONSUMERS = (1, 10, 100)
_ACKNOWLEDGING = (1, 10)
_SHARES = (50, 99)
_GOAL = 1.5


def measure_share_groups(bench: Bench) -> Iterator[Row]:
    with bench.brokers() as brokers:
        topics = {}
        for name, broker in brokers.items():
            wait_for_coordinator(broker, "first")
            topics[name] = bench.new_topic(broker)
            count = bench.scale.shared_messages
            bench.machine.produce(
                Produce(
                    broker.bootstrap, topics[name], broker.pid, _SIZE, count, batch_messages=_BATCH
                )
            )
        for consumers in _CONSUMERS:
            yield _worked_off(bench, brokers, topics, consumers)
        for consumers in _ACKNOWLEDGING:
            yield _acknowledged(bench, brokers, topics, consumers)
        yield _latency(bench, brokers)


def _worked_off(
    bench: Bench, brokers: dict[str, UnderTest], topics: dict[str, str], consumers: int
) -> Row:
    flows: dict[str, list[Flow]] = defaultdict(list)

    def run(name: str, broker: UnderTest, group: str) -> Flow:
        begin_at(broker.bootstrap, group, "earliest")
        count = broker.messages_in(topics[name], 1)
        task = ShareTopic(
            broker.host, broker.port, group, topics[name], broker.pid, consumers, count
        )
        return bench.children.run(task, Flow)

    for name, broker in brokers.items():
        bench.say(f"share groups: warming up {name}")
        run(name, broker, f"warm-{consumers}")
    for name, broker in bench.turns(f"share groups, {consumers} consumers", brokers):
        flows[name].append(run(name, broker, f"shared-{consumers}-{len(flows[name])}"))
    who = "1 consumer" if consumers == 1 else f"{consumers} consumers"
    title = f"share group, {who} on one partition, 100 B"
    return Row("share-groups", title, flow_comparison(flows, _SIZE))


def _acknowledged(
    bench: Bench, brokers: dict[str, UnderTest], topics: dict[str, str], consumers: int
) -> Row:
    flows: dict[str, list[RequestFlow]] = defaultdict(list)
    seconds = bench.scale.requests_s
    for name, broker in bench.turns(f"acknowledgements, {consumers} consumers", brokers):
        group = f"acknowledged-{consumers}-{len(flows[name])}"
        begin_at(broker.bootstrap, group, "earliest")
        task = ShareAcknowledgements(
            broker.host,
            broker.port,
            group,
            topics[name],
            broker.pid,
            consumers,
            seconds,
            warm_up_s=seconds,
        )
        flows[name].append(bench.children.run(task, RequestFlow))
    who = "1 consumer" if consumers == 1 else f"{consumers} consumers"
    return Row("share-groups", f"ShareAcknowledge of one message, {who}", request_comparison(flows))


def _latency(bench: Bench, brokers: dict[str, UnderTest]) -> Row:
    runs: dict[str, list[list[float]]] = defaultdict(list)
    for name, broker in brokers.items():
        bench.say(f"share groups, latency: warming up {name}")
        _ages(bench, broker, "latency-warm")
    for name, broker in bench.turns("share groups, latency", brokers):
        runs[name].append(_ages(bench, broker, f"latency-{len(runs[name])}"))
    return Row(
        "share-groups",
        f"share group, end to end at {RATE:,} msg/s",
        tuple(
            compared(
                f"p{share:g}",
                "ms",
                {name: [percentile(a, share) * 1000 for a in ages] for name, ages in runs.items()},
                goal=_GOAL if share == 99 else None,
            )
            for share in _SHARES
        ),
    )


def _ages(bench: Bench, broker: UnderTest, group: str) -> list[float]:
    count = bench.scale.latency_messages
    topic = bench.new_topic(broker)
    begin_at(broker.bootstrap, group, "earliest")
    consumer = bench.children.begin(
        ShareStamped(broker.host, broker.port, group, topic, count, min(500, count // 4))
    )
    consumer.line(timeout_s=30)
    producer = bench.children.begin(ProduceStamped(broker.bootstrap, topic, _SIZE, RATE, count))
    ages = consumer.answer(Ages, timeout_s=60 + 2 * count / RATE).seconds
    producer.stop()
    consumer.stop()
    broker.delete_topic(topic)
    return ages
