"""Share groups on a cluster whose brokers and members die: all work is done, and what was confirmed
stays so."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.testing import Cluster, Ensemble
from moldau.wire.apis import Api
from tests.broker.wire_client import Client
from tests.scenarios.clients import IMPATIENT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).parent / "share_member.py"
WITHIN_S = 120.0
PARTITIONS = 4
DEAD = "dlq.jobs"
OUT_OF_TRIES = b"Offset delivery count exceeded the threshold."
MOST_DELIVERIES = 10


class Ledger:
    """What members have said: `begun` before it was sent, `confirmed` once it was answered."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.confirmed: Counter[str] = Counter()

    def note(self, line: str) -> None:
        if line.startswith("? "):
            self.begun.add(line[2:])
        elif line != "ready":
            self.confirmed[line] += 1


class Letter(NamedTuple):
    """A dead letter: the record, why it is one, and how often it was delivered."""

    value: str
    reason: bytes
    deliveries: int


class Worker:
    """A member in a process of its own, which writes to a ledger."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        self._ledger = ledger
        words = [sys.executable, str(PROGRAM), cluster.bootstrap, "workers", "jobs"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A process that is killed may leave half a line.
            if line.endswith("\n"):
                self._ledger.note(line.strip())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self._thread.join(60)


def ask(cluster: Cluster, api: Api, **values: Any) -> Any:
    broker = cluster.running[0]
    host, _, port = cluster.address(broker).rpartition(":")
    with Client((host, int(port))) as client:
        return client.ask(api, **values)


def configure(cluster: Cluster, **configs: str) -> None:
    texts = [
        {"name": key.replace("_", "."), "config_operation": 0, "value": value}
        for key, value in configs.items()
    ]
    resource = {"resource_type": 32, "resource_name": "workers", "configs": texts}
    answer = ask(cluster, Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False)
    assert not answer.responses[0].error_code, answer


def letters(cluster: Cluster) -> list[Letter]:
    """All dead letters."""
    consumer = Consumer(
        {
            **IMPATIENT,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "check",
            "enable.partition.eof": True,
        }
    )
    metadata = consumer.list_topics(DEAD, 30).topics[DEAD]
    consumer.assign([TopicPartition(DEAD, each, 0) for each in metadata.partitions])
    found: list[Letter] = []
    ended: set[int] = set()
    try:
        while len(ended) < len(metadata.partitions):
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                headers: dict[str, Any] = dict(message.headers() or [])
                reason = headers["__dlq.errors.message"]
                deliveries = int(headers["__dlq.errors.delivery.count"])
                found.append(Letter((message.value() or b"").decode(), reason, deliveries))
            elif error.name() == "_PARTITION_EOF":
                ended.add(message.partition() or 0)
    finally:
        consumer.close()
    return found


def test_all_messages_are_worked_off_though_brokers_and_members_are_killed(
    ensemble: Ensemble,
) -> None:
    messages = 100_000
    settings = {
        "group.share.min.record.lock.duration.ms": "2000",
        "group.share.min.session.timeout.ms": "2000",
        "group.share.min.heartbeat.interval.ms": "500",
        "share.coordinator.state.topic.num.partitions": "6",
    }
    wanted = {f"job {number}" for number in range(messages)}
    rejected = {each for each in wanted if each.endswith("7")}
    with Cluster(3, ensemble, settings) as cluster:
        cluster.create_topic("jobs", PARTITIONS, 3, min_insync_replicas=2)
        cluster.create_topic(DEAD, PARTITIONS, 3, min_insync_replicas=2)
        configure(
            cluster,
            share_auto_offset_reset="earliest",
            share_record_lock_duration_ms="3000",
            share_session_timeout_ms="5000",
            share_heartbeat_interval_ms="1000",
            share_delivery_count_limit=str(MOST_DELIVERIES),
            errors_deadletterqueue_topic_name=DEAD,
        )
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(messages):
            producer.produce("jobs", f"job {number}".encode(), partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(60) == 0
        ledger = Ledger()
        workers = [Worker(cluster, ledger) for _ in range(3)]
        try:
            _play(cluster, workers, ledger, messages)
            told = letters(cluster)
        finally:
            for worker in workers:
                worker.kill()
        confirmed = ledger.confirmed
        died = {each.value for each in told}
        exhausted = {each.value for each in told if each.reason == OUT_OF_TRIES}
        for each in told:
            least = MOST_DELIVERIES if each.reason == OUT_OF_TRIES else 1
            assert least <= each.deliveries <= MOST_DELIVERIES, each
        # What was confirmed to a member that was killed may not have been printed.
        assert {each[2:] for each in confirmed if each.startswith("-")} <= died
        assert died - exhausted <= rejected, "a dead letter that nobody rejected"
        assert rejected <= died, "a rejected message without a dead letter"
        twice = [line for line, times in confirmed.items() if times > 1]
        assert not twice, "what was acknowledged was delivered again"
        accepted = {each[2:] for each in confirmed if each.startswith("+")}
        # What else is finished was accepted without an answer: the member, or the broker that had
        # it from the member, was killed before.
        assert wanted - accepted - died <= ledger.begun, "finished, but nobody said so"
        assert _lag(cluster) == 0


def _play(cluster: Cluster, workers: list[Worker], ledger: Ledger, messages: int) -> None:
    """Kill members and brokers, one after the other, while the work goes on."""
    confirmed = ledger.confirmed
    steps = 6
    for step in range(1, steps + 1):
        _wait_for(cluster, confirmed, messages * step // (steps + 1))
        if step % 2:
            workers.pop(0).kill()
            workers.append(Worker(cluster, ledger))
        else:
            broker = cluster.running[step // 2 % len(cluster.running)]
            cluster.kill(broker)
            _wait_for(cluster, confirmed, len(confirmed) + 50)
            cluster.start(broker)
            cluster.wait_until_in_sync("jobs")
    cluster.wait_until(lambda: _lag(cluster) == 0, "everything is done")


def _wait_for(cluster: Cluster, confirmed: Counter[str], count: int) -> None:
    """Return when so many are done, or nothing is left."""
    cluster.wait_until(
        lambda: len(confirmed) >= count or _lag(cluster) == 0, f"{count} messages are done"
    )


def _lag(cluster: Cluster) -> int:
    """The messages that are left, as the group's coordinator says; -1 if nobody does."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        for broker in cluster.running:
            host, _, port = cluster.address(broker).rpartition(":")
            with Client((host, int(port))) as client:
                answer = client.ask(
                    Api.DESCRIBE_SHARE_GROUP_OFFSETS,
                    groups=[{"group_id": "workers", "topics": None}],
                )
            group = answer.groups[0]
            if not group.error_code and group.topics:
                partitions = group.topics[0].partitions
                if all(each.lag >= 0 and not each.error_code for each in partitions):
                    return sum(each.lag for each in partitions)
        time.sleep(0.1)
    return -1
