"""Three brokers: what replication costs, and how long a dead leader's partition stands still."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import msgspec

from bench.kafka.broker import KafkaBroker, kafka_cluster
from bench.kafka.comparison import Row, compared
from bench.kafka.measure.throughput import flow_comparison
from bench.kafka.setup import Setup
from bench.kafka.sides import Bench
from moldau.bench.errors import BenchFailed, Unavailable
from moldau.bench.proc import cpu_seconds, wait_quiet
from moldau.bench.tasks import Flow, Produce
from moldau.wire.apis import Api

_SIZE = 1024
_WARM_UP_SHARE = 10
_WITHIN_S = 60.0
_KINDS = (("not replicated, acks=1", 1, 1), ("factor 3, acks=all", 3, -1))


class ThreeBrokers(Protocol):
    """A cluster, whoever made it; brokers are told apart by their ids."""

    @property
    def bootstrap(self) -> str: ...

    def pids(self) -> dict[int, int]:
        """The processes of the brokers that run, by id."""

    def kill(self, broker: int) -> None: ...

    def revive(self, broker: int) -> None: ...


class _KafkaThree:
    def __init__(self, brokers: list[KafkaBroker]) -> None:
        self._brokers = {broker.id: broker for broker in brokers}

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self._brokers.values())

    def pids(self) -> dict[int, int]:
        return {id: each.pid for id, each in self._brokers.items() if each.child is not None}

    def kill(self, broker: int) -> None:
        self._brokers[broker].kill()

    def revive(self, broker: int) -> None:
        self._brokers[broker].start()
        self._brokers[broker].wait_ready()


@contextmanager
def _kafka(bench: Bench, setup: Setup) -> Iterator[ThreeBrokers]:
    with kafka_cluster(bench.children, bench.new_folder(), setup) as brokers:
        yield _KafkaThree(brokers)


@contextmanager
def _moldau(bench: Bench) -> Iterator[ThreeBrokers]:
    try:
        from moldau.local.ensemble import NoZooKeeper
        from moldau.spark.runtime.java import NoJava
        from moldau.testing.cluster import Cluster
    except ImportError as reason:
        raise Unavailable(f"Moldau has no cluster here: {reason}") from None

    class Three:
        def __init__(self, cluster: Cluster) -> None:
            self._cluster = cluster

        @property
        def bootstrap(self) -> str:
            return self._cluster.bootstrap

        def pids(self) -> dict[int, int]:
            return {broker: self._cluster.pid(broker) for broker in self._cluster.running}

        def kill(self, broker: int) -> None:
            self._cluster.kill(broker)

        def revive(self, broker: int) -> None:
            self._cluster.start(broker)

    # Kafka's own defaults where the two have the same setting; Moldau's session is ZooKeeper's.
    settings = {"zookeeper.session.timeout.ms": "9000", "replica.lag.time.max.ms": "30000"}
    try:
        with Cluster(3, 1, settings, folder=bench.new_folder()) as cluster:
            yield Three(cluster)
            cluster.kill(*cluster.running)
    except (NoZooKeeper, NoJava) as problem:
        raise Unavailable(str(problem)) from None


def _sides(bench: Bench) -> dict[str, AbstractContextManager[ThreeBrokers]]:
    """A cluster of every side, each to be entered once."""
    return {
        side.name: _moldau(bench) if side.setup is None else _kafka(bench, side.setup)
        for side in bench.sides
    }


def measure_cluster(bench: Bench) -> Iterator[Row]:
    """One cluster at a time: three of three brokers would share the cores.

    One broker leads throughout: a virtual machine that compiles as it runs is timed warm only if
    it has done before what it is timed for.
    """
    flows: dict[str, dict[str, list[Flow]]] = {kind: defaultdict(list) for kind, *_ in _KINDS}
    for name, three in _sides(bench).items():
        with three as cluster:
            for sample in range(bench.scale.repeats + 1):
                for kind, factor, acks in _KINDS:
                    bench.say(f"cluster: {name}, {kind}, {sample} of {bench.scale.repeats}")
                    flow = _produce(bench, cluster, factor, acks)
                    # The first round warms up.
                    if sample > 0:
                        flows[kind][name].append(flow)
    plain, replicated = (flows[kind] for kind, *_ in _KINDS)
    for kind, *_ in _KINDS:
        figures = list(flow_comparison(flows[kind], _SIZE))
        if kind == _KINDS[1][0]:
            shares = {
                name: [
                    100 * (f.messages / f.seconds) / (p.messages / p.seconds)
                    for f, p in zip(replicated[name], plain[name], strict=True)
                ]
                for name in replicated
            }
            figures.append(compared("of the unreplicated", "%", shares, more=True, goal=1))
        yield Row("cluster", f"produce 1 KiB to 3 brokers, {kind}", tuple(figures))


def _produce(bench: Bench, cluster: ThreeBrokers, factor: int, acks: int) -> Flow:
    topic = bench.machine.new_topic()
    pids = cluster.pids()
    leader, *others = sorted(pids)
    _create(cluster, topic, [leader, *others][:factor])
    count = bench.scale.cluster_bytes // _SIZE
    warm_up = max(1, count // _WARM_UP_SHARE)
    task = Produce(cluster.bootstrap, topic, pids[leader], _SIZE, count, warm_up=warm_up, acks=acks)
    # Each replica is written once, and each but the leader's is sent once.
    written = (2 * factor - 1) * (count + warm_up) * _SIZE
    with bench.machine.warm_memory(written, *pids.values()):
        before = sum(map(cpu_seconds, pids.values()))
        flow = bench.children.run(task, Flow)
        # Of all brokers, and until the followers have it all; the warm-up has its share of that.
        wait_quiet(pids.values())
        used = sum(map(cpu_seconds, pids.values())) - before
    flow = msgspec.structs.replace(flow, broker_cpu_s=used * count / (count + warm_up))
    _delete(cluster, topic)
    wait_quiet(pids.values())
    return flow


def measure_failover(bench: Bench) -> Iterator[Row]:
    stood_still: dict[str, list[float]] = defaultdict(list)
    for name, three in _sides(bench).items():
        with three as cluster:
            topic = bench.machine.new_topic()
            _create(cluster, topic, sorted(cluster.pids()))
            for sample in range(bench.scale.failovers):
                bench.say(f"failover: {name}, {sample + 1} of {bench.scale.failovers}")
                stood_still[name].append(_fail_over(cluster, topic))
    yield Row(
        "failover",
        "the leader ends by kill -9",
        (compared("until acks=all is answered again", "s", stood_still),),
        note="With each broker's default time-outs (9 s until a silent broker counts as dead).",
    )


def _fail_over(cluster: ThreeBrokers, topic: str) -> float:
    from confluent_kafka import KafkaError, Message, Producer

    answered: list[float] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise BenchFailed(f"a message was not delivered: {error}")
        answered.append(time.monotonic())

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "request.timeout.ms": 1000,
            "socket.timeout.ms": 1000,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "message.timeout.ms": int(_WITHIN_S * 1000),
            "log_level": 0,
        }
    )
    producer.produce(topic, b"before", partition=0, on_delivery=note)
    producer.flush(_WITHIN_S)
    gone = _leader(cluster, topic, in_sync=3)
    started = time.monotonic()
    cluster.kill(gone)
    producer.produce(topic, b"after", partition=0, on_delivery=note)
    producer.flush(_WITHIN_S)
    if len(answered) != 2:
        raise BenchFailed(f"no acknowledgement within {_WITHIN_S:g} s after the leader's death")
    cluster.revive(gone)
    return answered[1] - started


def _leader(cluster: ThreeBrokers, topic: str, in_sync: int = 1) -> int:
    """The leader of the topic's one partition, once it has so many in-sync replicas."""
    from moldau.peer.connection import Connection
    from moldau.peer.errors import PeerError

    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        for address in cluster.bootstrap.split(","):
            host, _, port = address.rpartition(":")
            try:
                with Connection(host, int(port), "bench") as connection:
                    answer = connection.ask(Api.METADATA, {"topics": [{"name": topic}]})
            except (PeerError, OSError):
                continue
            for partition in answer.topics[0].partitions:
                if partition.leader_id >= 0 and len(partition.isr_nodes) >= in_sync:
                    return int(partition.leader_id)
        time.sleep(0.05)
    raise BenchFailed(f"{topic} has no leader with {in_sync} in sync within {_WITHIN_S:g} s")


def _create(cluster: ThreeBrokers, topic: str, replicas: list[int]) -> None:
    """A topic of one partition on these brokers, the first of which leads."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    config = {"min.insync.replicas": "2"} if len(replicas) > 1 else {}
    new = NewTopic(topic, num_partitions=1, replica_assignment=[replicas], config=config)
    admin.create_topics([new], request_timeout=60)[topic].result()
    _leader(cluster, topic, in_sync=len(replicas))


def _delete(cluster: ThreeBrokers, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    admin.delete_topics([topic], request_timeout=60)[topic].result()
