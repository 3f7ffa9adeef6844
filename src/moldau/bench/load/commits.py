"""Commits as a Python program makes them: confluent-kafka, one after another."""

from __future__ import annotations

import time

import confluent_kafka
from confluent_kafka import TopicPartition

from moldau.bench.errors import BenchFailed
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import CommitSynchronously, RequestFlow


def commit_synchronously(task: CommitSynchronously) -> RequestFlow:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "enable.auto.commit": False,
            "socket.nagle.disable": True,
        }
    )
    committed = 0

    def commit(seconds: float) -> int:
        nonlocal committed
        before, deadline = committed, time.monotonic() + seconds
        while time.monotonic() < deadline:
            offsets = [TopicPartition(task.topic, 0, committed)]
            for answer in consumer.commit(offsets=offsets, asynchronous=False):
                if answer.error is not None:
                    raise BenchFailed(f"committing to {task.group}: {answer.error}")
            committed += 1
        return committed - before

    # Finds the coordinator.
    commit(task.warm_up_s)
    broker_cpu, started = cpu_seconds(task.broker_pid), time.monotonic()
    commits = commit(task.seconds)
    return RequestFlow(
        requests=commits,
        total_requests=committed,
        seconds=time.monotonic() - started,
        broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
    )
