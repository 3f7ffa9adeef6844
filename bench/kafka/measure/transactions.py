"""Transactions: how many a second, and reading past those that were aborted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Compared, Row, compared
from bench.kafka.measure.throughput import flow_comparison
from bench.kafka.sides import Bench, UnderTest
from bench.tasks import AbortedShare, BulkFetch, Committed, FramedTransactions, Transactions
from moldau.bench.results import number
from moldau.bench.tasks import Consume, Flow, Produce, RequestFlow

_SIZE = 100
_MANY = 1000
_COPIED = 100
_GOAL = 1.5


def measure_transactions(bench: Bench) -> Iterator[Row]:
    with bench.brokers() as brokers:
        yield _framed(bench, brokers)
        yield _written(bench, brokers, 1, "1 message with confluent-kafka")
        yield _written(bench, brokers, _MANY, "1,000 messages of 100 B with confluent-kafka")
        yield _copied(bench, brokers)
        yield from _consumed(bench, brokers)


def _framed(bench: Bench, brokers: dict[str, UnderTest]) -> Row:
    topics = {name: bench.new_topic(broker) for name, broker in brokers.items()}
    flows: dict[str, list[RequestFlow]] = defaultdict(list)
    seconds = bench.scale.requests_s
    for name, broker in bench.turns("transactions by hand", brokers):
        task = FramedTransactions(
            broker.host,
            broker.port,
            topics[name],
            f"framed-{len(flows[name])}",
            broker.pid,
            _SIZE,
            seconds,
            warm_up_s=seconds,
        )
        flows[name].append(bench.children.run(task, RequestFlow))
    title = "transactions of 1 message, Produce and EndTxn one after another"
    return Row("transactions", title, _comparison(flows))


def _written(bench: Bench, brokers: dict[str, UnderTest], messages: int, what: str) -> Row:
    topics = {name: bench.new_topic(broker) for name, broker in brokers.items()}
    flows: dict[str, list[RequestFlow]] = defaultdict(list)
    for name, broker in bench.turns(f"transactions of {what}", brokers):
        task = _task(
            bench, broker, topics[name], f"written-{messages}-{len(flows[name])}", messages
        )
        flows[name].append(bench.children.run(task, RequestFlow))
    return Row("transactions", f"transactions of {what}", _comparison(flows))


def _copied(bench: Bench, brokers: dict[str, UnderTest]) -> Row:
    """Consume, transform, produce, with the offsets in the transaction."""
    sources, targets = {}, {}
    flows: dict[str, list[RequestFlow]] = defaultdict(list)
    for name, broker in brokers.items():
        sources[name], targets[name] = bench.new_topic(broker), bench.new_topic(broker)
        count = bench.scale.transformed_messages
        bench.machine.produce(Produce(broker.bootstrap, sources[name], broker.pid, _SIZE, count))
    what = f"consume, transform and produce {_COPIED} messages"
    for name, broker in bench.turns(what, brokers):
        id = f"copied-{len(flows[name])}"
        task = _task(bench, broker, targets[name], id, _COPIED, sources[name])
        flows[name].append(bench.children.run(task, RequestFlow))
    return Row("transactions", f"{what} with confluent-kafka", _comparison(flows))


def _consumed(bench: Bench, brokers: dict[str, UnderTest]) -> Iterator[Row]:
    topics, counts = {}, {}
    written = bench.scale.committed_messages
    for name, broker in brokers.items():
        bench.say(f"transactions, one of ten aborted: {name}")
        topics[name] = bench.new_topic(broker)
        task = AbortedShare(broker.bootstrap, topics[name], "aborted", _MANY, _SIZE, written)
        counts[name] = bench.children.run(task, Committed).messages
        # Kafka's machine is warm by then, and all pages are in memory.
        bench.children.run(_reading(broker, topics[name], counts[name]), Flow)
    consumed: dict[str, list[Flow]] = defaultdict(list)
    fetched: dict[str, list[Flow]] = defaultdict(list)
    for name, broker in bench.turns("consuming committed messages", brokers):
        consume = _reading(broker, topics[name], counts[name])
        consumed[name].append(bench.children.run(consume, Flow))
        bare = BulkFetch(broker.host, broker.port, topics[name], broker.pid, written, True)
        fetched[name].append(bench.children.run(bare, Flow))
    aborted = "read committed, one of ten transactions aborted"
    with bench.machine.null_broker(_SIZE) as (address, pid):
        most = bench.children.run(Consume(address, "null", pid, written), Flow)
    note = (
        "The client is part of this: against a broker that does nothing, librdkafka itself goes"
        f" through {number(most.messages / most.seconds)} msg/s."
    )
    yield Row("transactions", f"consume 100 B, {aborted}", flow_comparison(consumed, _SIZE), note)
    note = "Aborted records are fetched too; what is fetched is received and not looked into."
    title = f"fetch 100 B unread, {aborted}"
    yield Row("transactions", title, flow_comparison(fetched, _SIZE), note)


def _reading(broker: UnderTest, topic: str, count: int) -> Consume:
    """librdkafka reads committed messages unless it is told otherwise."""
    return Consume(broker.bootstrap, topic, broker.pid, count)


def _task(
    bench: Bench, broker: UnderTest, topic: str, id: str, messages: int, source: str | None = None
) -> Transactions:
    seconds = bench.scale.requests_s
    return Transactions(
        broker.bootstrap,
        topic,
        id,
        broker.pid,
        messages,
        _SIZE,
        seconds,
        # Long enough for a virtual machine to have compiled its way.
        warm_up_s=seconds,
        source=source,
    )


def _comparison(flows: dict[str, list[RequestFlow]]) -> tuple[Compared, ...]:
    rates = {name: [f.requests / f.seconds for f in some] for name, some in flows.items()}
    costs = {
        name: [f.broker_cpu_s * 1e6 / max(f.requests, 1) for f in some]
        for name, some in flows.items()
    }
    return (
        compared("transactions", "txn/s", rates, more=True, goal=_GOAL),
        compared("broker CPU per transaction", "us", costs),
    )
