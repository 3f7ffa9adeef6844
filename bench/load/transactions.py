"""Transactions as a Python program makes them: confluent-kafka, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.tasks import AbortedShare, Committed, Transactions
from moldau.bench.errors import BenchFailed
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import RequestFlow

_WITHIN_S = 60.0
_ABORTED_OF = 10


def connect(bootstrap: str, transactional_id: str) -> Producer:
    """Return a producer that has begun; librdkafka waits for the coordinator."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "queue.buffering.max.messages": 1_000_000,
            "socket.nagle.disable": True,
        }
    )
    producer.init_transactions(_WITHIN_S)
    return producer


def transactions(task: Transactions) -> RequestFlow:
    producer = connect(task.bootstrap, task.transactional_id)
    once = _copier(task, producer) if task.source else _writer(task, producer)

    def run(seconds: float) -> int:
        count, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            producer.begin_transaction()
            once()
            producer.commit_transaction(_WITHIN_S)
            count += 1
        return count

    before = run(task.warm_up_s)
    broker_cpu, started = cpu_seconds(task.broker_pid), time.monotonic()
    count = run(task.seconds)
    return RequestFlow(
        requests=count,
        total_requests=before + count,
        seconds=time.monotonic() - started,
        broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
    )


def _writer(task: Transactions, producer: Producer) -> Callable[[], None]:
    value = b"m" * task.size

    def write() -> None:
        for _ in range(task.messages):
            producer.produce(task.topic, value, partition=0)

    return write


def _copier(task: Transactions, producer: Producer) -> Callable[[], None]:
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.transactional_id,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(task.source or "", 0, 0)])

    def copy() -> None:
        found = consumer.consume(task.messages, _WITHIN_S)
        if len(found) != task.messages:
            raise BenchFailed(f"{task.source} had {len(found)} of {task.messages} messages")
        for message in found:
            producer.produce(task.topic, message.value(), partition=0)
        positions = consumer.position([TopicPartition(task.source or "", 0)])
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(positions, group, _WITHIN_S)

    return copy


def write_with_aborted(task: AbortedShare) -> Committed:
    """Transactions in turn: nine are committed, one is aborted once all of it is written."""
    producer = connect(task.bootstrap, task.transactional_id)
    value, committed = b"m" * task.size, 0
    for number in range(task.count // task.messages):
        producer.begin_transaction()
        for _ in range(task.messages):
            producer.produce(task.topic, value, partition=0)
        if number % _ABORTED_OF == _ABORTED_OF - 1:
            # An abort drops what is still queued.
            if producer.flush(_WITHIN_S):
                raise BenchFailed(f"{task.topic}: messages were not delivered")
            producer.abort_transaction(_WITHIN_S)
        else:
            producer.commit_transaction(_WITHIN_S)
            committed += task.messages
    return Committed(committed)
