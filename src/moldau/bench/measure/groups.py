"""Consumer groups: what a commit costs, and how long a large group takes to rebalance."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.bench.broker import BrokerUnderTest
from moldau.bench.errors import BenchFailed
from moldau.bench.results import Row, figure
from moldau.bench.tasks import (
    CommitRequests,
    CommitSynchronously,
    RebalanceGroup,
    Rebalances,
    RequestFlow,
)
from moldau.bench.workbench import Workbench

PIPELINED = 100
_OFFSET = 1000
_WAYS = (
    (1, "OffsetCommit, one in flight"),
    (PIPELINED, f"OffsetCommit, pipelined, {PIPELINED}"),
    (0, "commit with confluent-kafka, each waited for"),
)


def measure_groups(bench: Workbench) -> Iterator[Row]:
    with bench.broker() as broker:
        topic = bench.new_topic()
        broker.create_topic(topic)
        for in_flight, title in _WAYS:
            yield _commits(bench, broker, topic, in_flight, title)
        yield _rebalances(bench, broker, topic)


def _commits(
    bench: Workbench, broker: BrokerUnderTest, topic: str, in_flight: int, title: str
) -> Row:
    group = f"commits-{in_flight}"
    flows: list[RequestFlow] = []
    # Also has the broker create the topic of commits, if these are its first.
    before = broker.commits_taken(group)
    seconds = bench.scale.requests_s
    for sample in range(bench.scale.repeats):
        bench.say(f"groups, {title}: sample {sample + 1} of {bench.scale.repeats}")
        if in_flight:
            task: CommitRequests | CommitSynchronously = CommitRequests(
                broker.host,
                broker.port,
                group,
                topic,
                broker.pid,
                _OFFSET,
                in_flight,
                seconds,
                warm_up_s=seconds / 4,
            )
        else:
            task = CommitSynchronously(
                broker.bootstrap, group, topic, broker.pid, seconds, warm_up_s=seconds / 4
            )
        flows.append(bench.children.run(task, RequestFlow))
    taken = broker.commits_taken(group) - before
    answered = sum(flow.total_requests for flow in flows)
    if taken != answered:
        raise BenchFailed(f"the broker has stored {taken} commits, {answered} were acknowledged")
    return Row(
        "groups",
        title,
        (
            figure("commits", "commits/s", [f.requests / f.seconds for f in flows]),
            figure(
                "broker CPU per commit", "us", [f.broker_cpu_s * 1e6 / f.requests for f in flows]
            ),
        ),
    )


def _rebalances(bench: Workbench, broker: BrokerUnderTest, topic: str) -> Row:
    members, rounds = bench.scale.group_members, bench.scale.rebalances
    runs: list[Rebalances] = []
    for sample in range(bench.scale.repeats):
        bench.say(f"groups, {members} members: sample {sample + 1} of {bench.scale.repeats}")
        task = RebalanceGroup(
            broker.host,
            broker.port,
            f"rebalances-{sample}",
            topic,
            broker.pid,
            members,
            rounds,
        )
        runs.append(bench.children.run(task, Rebalances))
    return Row(
        "groups",
        f"rebalance of {members} members",
        (
            figure("one more joins", "ms", [1000 * took for run in runs for took in run.joined_s]),
            figure("one leaves", "ms", [1000 * took for run in runs for took in run.left_s]),
            figure("broker CPU", "ms", [1000 * r.broker_cpu_s / (2 * rounds) for r in runs]),
            figure("CPU of all members", "ms", [1000 * r.load_cpu_s / (2 * rounds) for r in runs]),
            figure("first join of all", "ms", [1000 * run.formed_s for run in runs]),
            figure("generations until then", "", [run.generations for run in runs]),
        ),
    )
