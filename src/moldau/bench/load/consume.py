"""Consume with librdkafka at millions of messages a second."""

from __future__ import annotations

import os
import time

from moldau.bench.errors import BenchFailed
from moldau.bench.proc import cpu_seconds
from moldau.bench.rdkafka import CONSUMER, Client, idle_callback
from moldau.bench.tasks import Consume, Flow

STALLED_S = 30


def consume(task: Consume) -> Flow:
    """Count messages as they come; the clock starts when the first is there.

    CPU time is counted from before: what the client fetches ahead of its first look is work, too.
    """
    if task.is_on_one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    client = Client(
        CONSUMER,
        {
            "bootstrap.servers": task.bootstrap,
            "fetch.message.max.bytes": 4 << 20,
            "fetch.max.bytes": 64 << 20,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 256 << 10,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": -1,
            **task.client,
        },
    )
    broker_cpu, client_cpu = cpu_seconds(task.broker_pid), time.process_time()
    queue = client.consume_from(task.topic, range(task.partitions), task.offset)
    callback = idle_callback()
    serve = client.lib.rd_kafka_consume_callback_queue

    def some() -> int:
        count: int = serve(queue, STALLED_S * 1000, callback, None)
        if count <= 0:
            raise BenchFailed(f"no message of {task.topic} for {STALLED_S} s")
        return count

    first = client.lib.rd_kafka_consume_queue(queue, STALLED_S * 1000)
    if not first or first.contents.err != 0:
        raise BenchFailed(f"no message of {task.topic} within {STALLED_S} s")
    client.lib.rd_kafka_message_destroy(first)
    started = time.monotonic()
    seen = 1
    while seen < task.count:
        seen += some()
    ended = time.monotonic()
    return Flow(
        messages=seen - 1,
        seconds=ended - started,
        broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
        client_cpu_s=time.process_time() - client_cpu,
        started=started,
        ended=ended,
    )
