"""Replication: its cost beside the same brokers without it, and how fast topics are created."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from moldau.bench.measure.clusters import cluster, seconds_until
from moldau.bench.measure.flows import client_limit, flow_figures
from moldau.bench.proc import cpu_seconds, wait_quiet
from moldau.bench.results import Row, Target, figure
from moldau.bench.tasks import Flow, Produce
from moldau.bench.workbench import Workbench
from moldau.testing.cluster import Cluster

_MESSAGE_SIZE = 1024
_WARM_UP_SHARE = 10
_ALL_KNOWN_WITHIN_S = 120.0

# (what it is called, replicas, acks, the most CPU that it may take)
_KINDS = (
    ("not replicated, acks=1", 1, 1, None),
    ("factor 3, acks=1", 3, 1, Target(2.5)),
    ("factor 3, acks=all", 3, -1, Target(2.5)),
)


def measure_cluster(bench: Workbench) -> Iterator[Row]:
    with cluster(bench, "throughput") as brokers:
        yield from _throughput(bench, brokers)
    with cluster(bench, "topics") as brokers:
        yield _topics(bench, brokers)


def _throughput(bench: Workbench, brokers: Cluster) -> Iterator[Row]:
    """The kinds take turns, so that a machine that changes its pace does so for all of them."""
    flows: dict[str, list[Flow]] = {kind: [] for kind, *_ in _KINDS}
    count = bench.scale.cluster_bytes // _MESSAGE_SIZE
    for sample in range(bench.scale.repeats):
        for kind, factor, acks, _ in _KINDS:
            bench.say(f"cluster: {kind}, sample {sample + 1} of {bench.scale.repeats}")
            topic = bench.new_topic()
            brokers.create_topic(topic, 1, factor)
            brokers.wait_until_in_sync(topic)
            flows[kind].append(_produce(bench, brokers, topic, factor, count, acks))
    with bench.null_broker(_MESSAGE_SIZE) as (address, pid):
        limit = bench.children.run(Produce(address, "null", pid, _MESSAGE_SIZE, count), Flow)
    plain = [flow.messages / flow.seconds for flow in flows[_KINDS[0][0]]]
    for kind, factor, _, cpu_target in _KINDS:
        figures = flow_figures(flows[kind], _MESSAGE_SIZE, cpu_target=cpu_target)
        if factor > 1:
            shares = [
                100 * flow.messages / flow.seconds / rate
                for flow, rate in zip(flows[kind], plain, strict=True)
            ]
            figures.append(figure("of the unreplicated", "%", shares))
        figures.append(client_limit([limit]))
        yield Row("cluster", f"produce 1 KiB to 3 brokers, {kind}", tuple(figures))


def _produce(
    bench: Workbench, brokers: Cluster, topic: str, factor: int, count: int, acks: int
) -> Flow:
    """Take one sample; its CPU time is that of all brokers until all of them have everything."""
    pids = [brokers.pid(broker) for broker in brokers.running]
    wait_quiet(pids)
    warm_up = count // _WARM_UP_SHARE
    task = Produce(
        brokers.bootstrap, topic, pids[0], _MESSAGE_SIZE, count, warm_up=warm_up, acks=acks
    )
    # Each replica is written once, and each but the leader's is sent once.
    written = (2 * factor - 1) * (count + warm_up) * _MESSAGE_SIZE
    with bench.warm_memory(written, *pids):
        before = sum(map(cpu_seconds, pids))
        flow = bench.children.run(task, Flow)
        wait_quiet(pids)
        cpu_s = sum(map(cpu_seconds, pids)) - before
    return msgspec.structs.replace(flow, broker_cpu_s=cpu_s * count / (count + warm_up))


def _topics(bench: Workbench, brokers: Cluster) -> Row:
    """Send one request after another, each with one topic of three replicas."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = bench.scale.cluster_topics
    bench.say(f"cluster: creating {topics:,} topics")
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 2})
    names = [bench.new_topic() for _ in range(topics)]
    admin.list_topics(timeout=30)
    started = time.monotonic()
    for name in names:
        admin.create_topics([NewTopic(name, 1, 3)])[name].result()
    created = time.monotonic() - started
    known = seconds_until(
        lambda: all(
            {name for name, _ in brokers.view(broker).partitions} >= set(names)
            for broker in brokers.running
        ),
        "every broker to know every topic",
        started,
        _ALL_KNOWN_WITHIN_S,
    )
    return Row(
        "cluster",
        f"{topics:,} topics of 3 replicas, created one after another",
        (
            figure("creation", "s", [created], Target(60)),
            figure("until every broker knows all", "s", [known]),
        ),
    )
