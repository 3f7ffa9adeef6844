"""Consumer groups (KIP-848) on a cluster whose brokers, coordinators and members are killed: all is
read, and what was committed is not read again."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.testing import Cluster, Ensemble
from moldau.wire.apis import Api
from tests.broker.wire_client import Client
from tests.scenarios.clients import IMPATIENT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).parent / "group_member.py"
PARTITIONS = 6
TOPIC, GROUP = "events", "readers"
# One before anybody is killed, and one for each that is.
PHASES = 7
MESSAGES = 100_000
GROUP_RESOURCE = 32
Place = tuple[int, int]


class Ledger:
    """How often each message was tried, and how often it was committed."""

    def __init__(self) -> None:
        self.tried: Counter[Place] = Counter()
        self.done: Counter[Place] = Counter()
        self._lock = threading.Lock()

    def note(self, line: str) -> None:
        kind, *numbers = line.split()
        partition, first, last = map(int, numbers)
        counter = self.tried if kind == "try" else self.done
        with self._lock:
            counter.update((partition, offset) for offset in range(first, last + 1))


class Worker:
    """A member in a process of its own."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        words = [sys.executable, str(PROGRAM), cluster.bootstrap, GROUP, TOPIC]
        self._ledger = ledger
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A process that is killed may leave half a line.
            if line.endswith("\n") and line != "ready\n":
                self._ledger.note(line)

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0
        self._thread.join(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._thread.join(30)


class Source:
    """Writes the messages, a part at a time, evenly over the partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._producer = Producer(
            {**IMPATIENT, "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
        )
        self.written = 0

    def write(self, count: int) -> None:
        for number in range(self.written, self.written + count):
            self._producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
        self.written += count


def committed(cluster: Cluster) -> int:
    consumer = Consumer({**IMPATIENT, "bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    try:
        places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        return sum(max(each.offset, 0) for each in consumer.committed(places, 30))
    finally:
        consumer.close()


def test_every_message_is_read_and_what_was_committed_is_not_read_again(
    ensemble: Ensemble,
) -> None:
    ledger = Ledger()
    workers: list[Worker] = []
    with Cluster(
        3,
        ensemble,
        offsets_topic_num_partitions=1,
        group_consumer_min_heartbeat_interval_ms=300,
        group_consumer_heartbeat_interval_ms=300,
        group_consumer_min_session_timeout_ms=3_000,
    ) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
        source = Source(cluster)
        try:
            workers += [Worker(cluster, ledger) for _ in range(3)]
            _hand_over(cluster, source, workers, ledger)
            # Nobody is to be missed on a busy machine before; from here on that costs nothing.
            _shorten_sessions(cluster)
            _kill(cluster, source, workers, ledger)
            for worker in workers:
                worker.leave()
        finally:
            for worker in workers:
                worker.kill()
        assert sum(ledger.done.values()) == len(ledger.done), "committed twice"
        assert committed(cluster) == source.written == MESSAGES
    each = MESSAGES // PARTITIONS
    missed = MESSAGES - len(ledger.tried)
    assert not missed, f"{missed} messages were never read"
    assert {offset for _, offset in ledger.tried} <= set(range(each + 1))


def _shorten_sessions(cluster: Cluster) -> None:
    entry = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "3000"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": GROUP, "configs": [entry]}
    host, _, port = cluster.address(cluster.running[0]).rpartition(":")
    with Client((host, int(port))) as client:
        answer = client.ask(
            Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
        )
    assert not answer.responses[0].error_code, answer


def _part(source: Source, phases_left: int) -> int:
    return (MESSAGES - source.written) // phases_left


def _hand_over(cluster: Cluster, source: Source, workers: list[Worker], ledger: Ledger) -> None:
    """Let members come and go in order: each message is read once."""
    source.write(_part(source, PHASES))
    cluster.wait_until(lambda: len(ledger.done) > source.written // 4, "a quarter is read")
    workers.append(Worker(cluster, ledger))
    cluster.wait_until(lambda: len(ledger.done) > source.written // 2, "half is read")
    workers.pop(0).leave()
    cluster.wait_until(lambda: len(ledger.done) == source.written, "all is read")
    assert ledger.tried == ledger.done, "a message was read again after a clean hand-over"


def _go_on(cluster: Cluster, source: Source, ledger: Ledger, count: int) -> None:
    before = len(ledger.tried)
    source.write(count)
    cluster.wait_until(lambda: len(ledger.tried) > before, "reading goes on")


def _kill(cluster: Cluster, source: Source, workers: list[Worker], ledger: Ledger) -> None:
    """Kill members, the coordinator and leaders in turn while there is something to read."""
    for step in range(1, PHASES):
        _go_on(cluster, source, ledger, _part(source, PHASES - step))
        if step % 2:
            workers.pop(0).kill()
            workers.append(Worker(cluster, ledger))
        else:
            leads = "__consumer_offsets" if step % 4 else TOPIC
            broker = cluster.leader_of(leads)
            cluster.kill(broker)
            cluster.wait_until(
                lambda: len(ledger.tried) == source.written, "all is read without that broker"
            )
            cluster.start(broker)
            cluster.wait_until_in_sync(TOPIC)
            cluster.wait_until_in_sync("__consumer_offsets")
    cluster.wait_until(lambda: committed(cluster) == source.written, "all is committed")
