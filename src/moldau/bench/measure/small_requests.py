"""Small Produce requests: the cost of one, alone in flight and pipelined."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.bench.results import Row, Target, figure
from moldau.bench.tasks import RequestFlow, SmallRequests
from moldau.bench.workbench import Workbench

PIPELINED = 100
_MESSAGE_SIZE = 100


def measure_small_requests(bench: Workbench) -> Iterator[Row]:
    with bench.broker() as broker:
        for in_flight, title in ((1, "one in flight"), (PIPELINED, f"pipelined, {PIPELINED}")):
            topic = bench.new_topic()
            broker.create_topic(topic)
            flows: list[RequestFlow] = []
            sent = 0
            for sample in range(bench.scale.repeats):
                bench.say(f"requests, {title}: sample {sample + 1} of {bench.scale.repeats}")
                task = SmallRequests(
                    broker.host,
                    broker.port,
                    topic,
                    broker.pid,
                    size=_MESSAGE_SIZE,
                    in_flight=in_flight,
                    seconds=bench.scale.requests_s,
                    warm_up_s=bench.scale.requests_s / 4,
                )
                flows.append(bench.children.run(task, RequestFlow))
                sent += flows[-1].total_requests
            broker.expect_messages(topic, sent)
            costs = [f.broker_cpu_s * 1e6 / f.requests for f in flows]
            yield Row(
                "requests",
                f"Produce of 100 B, {title}",
                (
                    figure("requests", "req/s", [f.requests / f.seconds for f in flows]),
                    figure(
                        "broker CPU per request",
                        "us",
                        costs,
                        Target(12) if in_flight > 1 else None,
                    ),
                ),
            )
