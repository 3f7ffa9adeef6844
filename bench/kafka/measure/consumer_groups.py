"""Consumer groups whose assignment is the broker's (KIP-848): large ones, and many of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Row, compared
from bench.kafka.measure.groups import wait_for_coordinator
from bench.kafka.sides import Bench, UnderTest
from bench.tasks import (
    ConsumerRebalances,
    GroupFlows,
    ManyConsumerGroups,
    RebalanceConsumerGroup,
)

_GOAL = 1.5
_GROUP_OF = 10
_AT_ONCE = 50
_PARTITIONS_EACH = 2


def measure_consumer_groups(bench: Bench) -> Iterator[Row]:
    with bench.brokers() as brokers:
        for broker in brokers.values():
            wait_for_coordinator(broker, "first")
        yield _rebalances(bench, brokers)
        yield _many(bench, brokers)


def _rebalances(bench: Bench, brokers: dict[str, UnderTest]) -> Row:
    members, rounds = bench.scale.consumer_group_members, bench.scale.rebalances
    partitions = _PARTITIONS_EACH * members
    topics = {name: bench.new_topic(broker, partitions) for name, broker in brokers.items()}
    runs: dict[str, list[ConsumerRebalances]] = defaultdict(list)
    for name, broker in bench.turns(f"consumer groups, {members} members", brokers):
        task = RebalanceConsumerGroup(
            broker.host,
            broker.port,
            f"rebalances-{len(runs[name])}",
            topics[name],
            broker.pid,
            members,
            partitions,
            rounds,
        )
        runs[name].append(bench.children.run(task, ConsumerRebalances))

    joined = {n: [1000 * took for r in some for took in r.joined_s] for n, some in runs.items()}
    left = {n: [1000 * took for r in some for took in r.left_s] for n, some in runs.items()}
    unowned = {n: [1000 * took for r in some for took in r.unowned_s] for n, some in runs.items()}
    formed = {n: [1000 * r.formed_s for r in some] for n, some in runs.items()}
    cpu = {n: [1000 * r.broker_cpu_s / (2 * rounds) for r in some] for n, some in runs.items()}
    still = ", ".join(
        f"{1000 * max(r.stood_still_s for r in some):g} ms ({name})" for name, some in runs.items()
    )
    return Row(
        "consumer-groups",
        f"rebalance of {members} members, KIP-848",
        (
            compared("one more joins", "ms", joined, goal=_GOAL),
            compared("one leaves", "ms", left, goal=_GOAL),
            compared("a partition that moves has no owner", "ms", unowned),
            compared("first join of all", "ms", formed, goal=_GOAL),
            compared("broker CPU", "ms", cpu),
        ),
        f"The longest that a member stood still which kept its partitions: {still}.",
    )


def _many(bench: Bench, brokers: dict[str, UnderTest]) -> Row:
    groups = bench.scale.consumer_groups
    topics = {name: bench.new_topic(broker, _GROUP_OF) for name, broker in brokers.items()}
    runs: dict[str, list[GroupFlows]] = defaultdict(list)
    for name, broker in bench.turns(f"{groups} consumer groups", brokers):
        task = ManyConsumerGroups(
            broker.host,
            broker.port,
            f"many-{len(runs[name])}",
            topics[name],
            broker.pid,
            groups,
            _GROUP_OF,
            min(_AT_ONCE, groups),
            bench.scale.requests_s,
        )
        runs[name].append(bench.children.run(task, GroupFlows))
    formed = {n: [r.formed_s for r in some] for n, some in runs.items()}
    forming = {n: [r.formed_cpu_s for r in some] for n, some in runs.items()}
    beats = {n: [r.heartbeats for r in some] for n, some in runs.items()}
    commits = {n: [r.commits for r in some] for n, some in runs.items()}
    return Row(
        "consumer-groups",
        f"{groups:,} groups of {_GROUP_OF}, KIP-848",
        (
            compared("all groups formed", "s", formed, goal=_GOAL),
            compared("broker CPU to form them", "s", forming),
            *(
                each
                for what, flows in (("heartbeat", beats), ("commit", commits))
                for each in (
                    compared(
                        f"{what}s",
                        "req/s",
                        {n: [f.requests / f.seconds for f in some] for n, some in flows.items()},
                        more=True,
                        goal=_GOAL,
                    ),
                    compared(
                        f"broker CPU per {what}",
                        "us",
                        {
                            n: [f.broker_cpu_s * 1e6 / max(f.requests, 1) for f in some]
                            for n, some in flows.items()
                        },
                    ),
                )
            ),
        ),
    )
