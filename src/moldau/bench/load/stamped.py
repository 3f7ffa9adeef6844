"""Messages that carry the time they were produced, for latency from end to end.

Both ends read CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import time

from moldau.bench.errors import BenchFailed
from moldau.bench.rdkafka import CONSUMER, MSG_F_COPY, PRODUCER, Client
from moldau.bench.tasks import Ages, ConsumeStamped, ProduceStamped

STAMP = struct.Struct("<qq")
STALLED_S = 30


def produce_stamped(task: ProduceStamped) -> Ages:
    client = Client(
        PRODUCER,
        {
            "bootstrap.servers": task.bootstrap,
            "acks": 1,
            "linger.ms": 0,
            "socket.nagle.disable": "true",
        },
    )
    topic = client.topic(task.topic)
    produce = client.lib.rd_kafka_produce
    filler = bytes(task.size - STAMP.size)
    due = time.monotonic()
    for number in range(task.count):
        wait = due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        payload = STAMP.pack(number, time.monotonic_ns()) + filler
        if produce(topic, 0, MSG_F_COPY, payload, len(payload), None, 0, None) != 0:
            raise BenchFailed("librdkafka's queue is full at a trickle of messages")
        due += 1 / task.rate
    client.flush(STALLED_S)
    return Ages([])


def consume_stamped(task: ConsumeStamped) -> Ages:
    client = Client(
        CONSUMER,
        {
            "bootstrap.servers": task.bootstrap,
            "fetch.wait.max.ms": 500,
            "fetch.min.bytes": 1,
            "socket.nagle.disable": "true",
        },
    )
    queue = client.consume_from(task.topic, range(1), 0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    lib = client.lib
    ages: list[float] = []
    for _ in range(task.count):
        message = lib.rd_kafka_consume_queue(queue, STALLED_S * 1000)
        arrived = time.monotonic_ns()
        if not message or message[0].err != 0:
            raise BenchFailed(f"no message of {task.topic} within {STALLED_S} s")
        number, sent = STAMP.unpack(ctypes.string_at(message[0].payload, STAMP.size))
        lib.rd_kafka_message_destroy(message)
        if number >= task.warm_up:
            ages.append((arrived - sent) / 1e9)
    return Ages(ages)
