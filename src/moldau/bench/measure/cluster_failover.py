"""Failover: how long a partition has no leader when its broker dies or falls silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from moldau.bench.errors import BenchFailed
from moldau.bench.measure.clusters import SESSION_TIMEOUT_S, cluster, seconds_until
from moldau.bench.results import Row, Target, figure
from moldau.bench.workbench import Workbench
from moldau.peer.connection import Connection
from moldau.testing.cluster import Cluster
from moldau.testing.view import view_of
from moldau.wire.apis import Api

_WITHIN_S = 60.0
_TOPIC = "failover"
_PER_TOPIC = 100


def measure_failover(bench: Workbench) -> Iterator[Row]:
    with cluster(bench, "failover") as brokers:
        brokers.create_topic(_TOPIC, 3, 3, min_insync_replicas=2)
        yield _of_kind(bench, brokers, "kill -9", brokers.kill, brokers.start, 1.0)
        yield _of_kind(
            bench,
            brokers,
            f"SIGSTOP, session timeout {SESSION_TIMEOUT_S:g} s",
            brokers.freeze,
            brokers.thaw,
            SESSION_TIMEOUT_S + 1.0,
        )
    with cluster(bench, "controller") as brokers:
        yield _controller(bench, brokers)


class _Eyes:
    """An open connection to each of some brokers, to ask them often."""

    def __init__(self, cluster: Cluster, brokers: list[int]) -> None:
        self._connections = []
        for broker in brokers:
            host, _, port = cluster.address(broker).rpartition(":")
            self._connections.append(Connection(host, int(port), "bench"))

    def all_see(self, gone: int, topics: list[str] | None) -> bool:
        """Return whether all of them see every partition led by somebody else, and a controller."""
        named = None if topics is None else [{"name": name} for name in topics]
        for connection in self._connections:
            view = view_of(connection.ask(Api.METADATA, {"topics": named}))
            leaders = {partition.leader for partition in view.partitions.values()}
            if leaders & {gone, -1} or view.controller in (gone, -1):
                return False
        return True

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def _of_kind(
    bench: Workbench,
    brokers: Cluster,
    kind: str,
    hit: Callable[[int], None],
    undo: Callable[[int], None],
    limit_s: float,
) -> Row:
    leaderless: list[float] = []
    unwritable: list[float] = []
    for sample in range(bench.scale.failovers):
        bench.say(f"failover: {kind}, {sample + 1} of {bench.scale.failovers}")
        brokers.wait_until_in_sync(_TOPIC)
        gone = brokers.leader_of(_TOPIC)
        eyes = _Eyes(brokers, [broker for broker in brokers.running if broker != gone])
        writer = _Writer(brokers.bootstrap)
        writer.write()
        started = time.monotonic()
        hit(gone)
        writer.begin()
        leaderless.append(
            seconds_until(
                lambda gone=gone, eyes=eyes: eyes.all_see(gone, [_TOPIC]),  # type: ignore[misc]
                "another leader",
                started,
                _WITHIN_S,
            )
        )
        unwritable.append(writer.end() - started)
        eyes.close()
        undo(gone)
    return Row(
        "failover",
        f"the leader ends by {kind}",
        (
            figure("until every broker knows another", "s", leaderless, Target(limit_s)),
            figure("until a librdkafka producer is answered, acks=all", "s", unwritable),
        ),
    )


class _Writer:
    """Sends one message with acks=all, and notes when it was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
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
        self._acknowledged = 0.0

    def begin(self) -> None:
        self._acknowledged = 0.0
        self._producer.produce(_TOPIC, b"after", partition=0, on_delivery=self._delivered)

    def end(self) -> float:
        """Return when the message was acknowledged."""
        self._producer.flush(_WITHIN_S)
        if not self._acknowledged:
            raise BenchFailed(f"a message was not acknowledged within {_WITHIN_S:g} s")
        return self._acknowledged

    def write(self) -> None:
        self.begin()
        self.end()

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            raise BenchFailed(f"a message was not delivered: {error}")
        self._acknowledged = time.monotonic()


def _controller(bench: Workbench, brokers: Cluster) -> Row:
    partitions = bench.scale.cluster_partitions
    topics = [bench.new_topic() for _ in range(max(1, partitions // _PER_TOPIC))]
    bench.say(f"failover: creating {partitions:,} partitions")
    for topic in topics:
        brokers.create_topic(topic, partitions // len(topics), 3)
    brokers.wait_until_in_sync(within_s=120)
    bench.say(f"failover: the controller of {partitions:,} partitions dies")
    gone = brokers.controller()
    eyes = _Eyes(brokers, [broker for broker in brokers.running if broker != gone])
    started = time.monotonic()
    brokers.kill(gone)
    took = seconds_until(
        lambda: eyes.all_see(gone, None), "a leader for everything", started, _WITHIN_S
    )
    eyes.close()
    return Row(
        "failover",
        f"the controller, leader of a third of {partitions:,} partitions, ends by kill -9",
        (figure("until every broker knows leaders for all", "s", [took], Target(3.0)),),
    )
