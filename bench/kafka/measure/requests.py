"""Requests: what one small Produce request costs, one in flight and pipelined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Compared, Row, compared
from bench.kafka.sides import Bench
from moldau.bench.tasks import RequestFlow, SmallRequests

_PIPELINED = 100
_MESSAGE_SIZE = 100


def measure_requests(bench: Bench) -> Iterator[Row]:
    with bench.brokers() as brokers:
        for in_flight, title in ((1, "one in flight"), (_PIPELINED, f"pipelined, {_PIPELINED}")):
            topics = {name: bench.new_topic(broker) for name, broker in brokers.items()}
            flows: dict[str, list[RequestFlow]] = defaultdict(list)
            for name, broker in bench.turns(f"requests, {title}", brokers):
                task = SmallRequests(
                    broker.host,
                    broker.port,
                    topics[name],
                    broker.pid,
                    size=_MESSAGE_SIZE,
                    in_flight=in_flight,
                    seconds=bench.scale.requests_s,
                    # Long enough for a virtual machine to have compiled its way.
                    warm_up_s=bench.scale.requests_s,
                )
                flows[name].append(bench.children.run(task, RequestFlow))
            for name, broker in brokers.items():
                sent = sum(flow.total_requests for flow in flows[name])
                broker.expect_messages(topics[name], sent)
            yield Row("requests", f"Produce of 100 B, {title}", request_comparison(flows))


def request_comparison(flows: dict[str, list[RequestFlow]]) -> tuple[Compared, ...]:
    rates = {name: [f.requests / f.seconds for f in some] for name, some in flows.items()}
    costs = {
        name: [f.broker_cpu_s * 1e6 / f.requests for f in some] for name, some in flows.items()
    }
    return (
        compared("requests", "req/s", rates, more=True),
        compared("broker CPU per request", "us", costs),
    )
