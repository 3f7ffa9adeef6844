"""Consumer groups: what a commit costs, and how long a large group takes to rebalance."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Row, compared
from bench.kafka.measure.requests import request_comparison
from bench.kafka.sides import Bench, UnderTest
from moldau.bench.errors import BenchFailed
from moldau.bench.tasks import (
    CommitRequests,
    CommitSynchronously,
    RebalanceGroup,
    Rebalances,
    RequestFlow,
)
from moldau.peer.connection import Connection
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_OFFSET = 1000
_COORDINATOR_WITHIN_S = 60.0
_WAYS = (
    (1, "OffsetCommit, one in flight"),
    (100, "OffsetCommit, pipelined, 100"),
    (0, "commit with confluent-kafka, each waited for"),
)


def measure_groups(bench: Bench) -> Iterator[Row]:
    with bench.brokers() as brokers:
        topics = {name: bench.new_topic(broker) for name, broker in brokers.items()}
        for in_flight, title in _WAYS:
            yield _commits(bench, brokers, topics, in_flight, title)
        yield _rebalances(bench, brokers, topics)


def _commits(
    bench: Bench,
    brokers: dict[str, UnderTest],
    topics: dict[str, str],
    in_flight: int,
    title: str,
) -> Row:
    group = f"commits-{in_flight}"
    seconds = bench.scale.requests_s
    flows: dict[str, list[RequestFlow]] = defaultdict(list)
    for broker in brokers.values():
        wait_for_coordinator(broker, group)
    for name, broker in bench.turns(f"groups, {title}", brokers):
        if in_flight:
            task: CommitRequests | CommitSynchronously = CommitRequests(
                broker.host,
                broker.port,
                group,
                topics[name],
                broker.pid,
                _OFFSET,
                in_flight,
                seconds,
                warm_up_s=seconds,
            )
        else:
            task = CommitSynchronously(
                broker.bootstrap, group, topics[name], broker.pid, seconds, warm_up_s=seconds
            )
        flows[name].append(bench.children.run(task, RequestFlow))
    return Row("groups", title, request_comparison(flows))


def wait_for_coordinator(broker: UnderTest, group: str) -> None:
    """Until somebody coordinates the group; the first question has the topic of commits created.

    Asked by hand: confluent-kafka 2.16 crashes when it lists a group's offsets before that.
    """
    deadline = time.monotonic() + _COORDINATOR_WITHIN_S
    with Connection(broker.host, broker.port, "bench") as connection:
        while True:
            found = connection.ask(
                Api.FIND_COORDINATOR, {"key": group, "key_type": 0, "coordinator_keys": [group]}
            )
            codes = [int(each.error_code) for each in getattr(found, "coordinators", [found])]
            if codes == [0]:
                beat = {"group_id": group, "generation_id": 1, "member_id": "nobody"}
                answer = connection.ask(Api.HEARTBEAT, beat)
                if int(answer.error_code) == Error.UNKNOWN_MEMBER_ID:
                    return
            if time.monotonic() > deadline:
                raise BenchFailed(f"{group} has no coordinator: {found}")
            time.sleep(0.05)


def _rebalances(bench: Bench, brokers: dict[str, UnderTest], topics: dict[str, str]) -> Row:
    members, rounds = bench.scale.group_members, bench.scale.rebalances
    runs: dict[str, list[Rebalances]] = defaultdict(list)
    for name, broker in bench.turns(f"groups, {members} members", brokers):
        task = RebalanceGroup(
            broker.host,
            broker.port,
            f"rebalances-{len(runs[name])}",
            topics[name],
            broker.pid,
            members,
            rounds,
        )
        runs[name].append(bench.children.run(task, Rebalances))

    joined = {n: [1000 * took for r in some for took in r.joined_s] for n, some in runs.items()}
    left = {n: [1000 * took for r in some for took in r.left_s] for n, some in runs.items()}
    formed = {n: [1000 * r.formed_s for r in some] for n, some in runs.items()}
    cpu = {n: [1000 * r.broker_cpu_s / (2 * rounds) for r in some] for n, some in runs.items()}
    return Row(
        "groups",
        f"rebalance of {members} members",
        (
            compared("one more joins", "ms", joined),
            compared("one leaves", "ms", left),
            compared("first join of all", "ms", formed),
            compared("broker CPU", "ms", cpu),
        ),
    )
