"""The loops that users write around moldau.client, and around confluent-kafka for comparison.

Each program is made once, connects, and is then told how many messages to go through; it returns
when all of them are delivered or read. Both sides are given the same settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

import confluent_kafka

from moldau.bench.errors import BenchFailed
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import ClientProgram, Flow
from moldau.client import Consumer, Message, MessageSet, Producer

SET_MESSAGES = 1000
CONSUME_MESSAGES = 1000
STALLED_S = 30
_FULL_POLL_S = 0.05

_PRODUCER = {
    "acks": 1,
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 500_000,
    "partitioner": "murmur2_random",
}
_CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "fetch.message.max.bytes": 4 << 20,
    "queued.min.messages": 200_000,
    # At librdkafka's one second, a reader this fast would wait more often than read.
    "fetch.queue.backoff.ms": 20,
}

Run = Callable[[int], None]
OnDelivery = Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]


def produce_loop(task: ClientProgram) -> Run:
    producer = confluent_kafka.Producer({"bootstrap.servers": task.bootstrap, **_PRODUCER})
    topic, value = task.topic, b"m" * task.size

    def run(count: int) -> None:
        for _ in range(count):
            try:
                producer.produce(topic, value)
            except BufferError:
                _produce_when_room(producer, topic, value)
        _flush(producer)

    return run


def produce_with_callback(task: ClientProgram) -> Run:
    producer = confluent_kafka.Producer({"bootstrap.servers": task.bootstrap, **_PRODUCER})
    topic, value = task.topic, b"m" * task.size
    delivered = 0

    def note(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1

    def run(count: int) -> None:
        before = delivered
        for _ in range(count):
            try:
                producer.produce(topic, value, on_delivery=note)
            except BufferError:
                _produce_when_room(producer, topic, value, note)
        _flush(producer)
        if delivered - before != count:
            raise BenchFailed(f"{delivered - before} of {count} messages were delivered")

    return run


def post(task: ClientProgram) -> Run:
    producer = Producer(task.bootstrap, settings=_PRODUCER)
    topic, value = task.topic, b"m" * task.size

    def run(count: int) -> None:
        for _ in range(count):
            producer.post(topic, value)
        producer.flush(STALLED_S)

    return run


def send_sets_of_values(task: ClientProgram) -> Run:
    value = b"m" * task.size
    return _send_sets(task, lambda count: MessageSet(value for _ in range(count)))


def send_sets_of_messages(task: ClientProgram) -> Run:
    value = b"m" * task.size
    return _send_sets(task, lambda count: MessageSet(Message(value) for _ in range(count)))


def _send_sets(task: ClientProgram, make: Callable[[int], MessageSet]) -> Run:
    producer = Producer(task.bootstrap, settings=_PRODUCER)
    topic = task.topic

    def run(count: int) -> None:
        results = [
            producer.send(topic, make(min(SET_MESSAGES, count - first)))
            for first in range(0, count, SET_MESSAGES)
        ]
        written = sum(result.result(STALLED_S).written for result in results)
        if written != count:
            raise BenchFailed(f"{written} of {count} messages were written")

    return run


def send(task: ClientProgram) -> Run:
    producer = Producer(task.bootstrap, settings=_PRODUCER)
    topic, value = task.topic, b"m" * task.size

    def run(count: int) -> None:
        results = [producer.send(topic, value) for _ in range(count)]
        producer.flush(STALLED_S)
        if not all(result.done for result in results) or results[-1].offset < count - 1:
            raise BenchFailed("messages without a result after a flush")

    return run


def consume_loop(task: ClientProgram) -> Run:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": task.bootstrap, **_CONSUMER})
    consumer.assign([confluent_kafka.TopicPartition(task.topic, 0, 0)])

    def run(count: int) -> None:
        size = seen = 0
        while seen < count:
            messages = consumer.consume(min(CONSUME_MESSAGES, count - seen), STALLED_S)
            if not messages:
                raise BenchFailed(f"no message of {task.topic} for {STALLED_S} s")
            for message in messages:
                if message.error() is not None:
                    raise BenchFailed(f"{task.topic}: {message.error()}")
                size += len(message.value() or b"")
            seen += len(messages)
        _expect_bytes(size, count * task.size)

    return run


def iterate(task: ClientProgram) -> Run:
    consumer = Consumer(task.bootstrap, settings=_CONSUMER)
    consumer.assign((task.topic, 0, 0))
    messages = iter(consumer)

    def run(count: int) -> None:
        size = 0
        for message in islice(messages, count):
            size += len(message.value)
        _expect_bytes(size, count * task.size)

    return run


PROGRAMS: dict[str, Callable[[ClientProgram], Run]] = {
    program.__name__: program
    for program in (
        produce_loop,
        produce_with_callback,
        post,
        send_sets_of_values,
        send_sets_of_messages,
        send,
        consume_loop,
        iterate,
    )
}


def run_program(task: ClientProgram) -> Flow:
    run = PROGRAMS[task.program](task)
    run(max(task.warm_up, 1))
    broker_cpu, client_cpu = cpu_seconds(task.broker_pid), time.process_time()
    started = time.monotonic()
    run(task.count)
    ended = time.monotonic()
    return Flow(
        messages=task.count,
        seconds=ended - started,
        broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
        client_cpu_s=time.process_time() - client_cpu,
        started=started,
        ended=ended,
    )


def _produce_when_room(
    producer: confluent_kafka.Producer,
    topic: str,
    value: bytes,
    on_delivery: OnDelivery | None = None,
) -> None:
    deadline = time.monotonic() + STALLED_S
    while time.monotonic() < deadline:
        producer.poll(_FULL_POLL_S)
        try:
            producer.produce(topic, value, on_delivery=on_delivery)
            return
        except BufferError:
            continue
    raise BenchFailed(f"librdkafka's queue was full for {STALLED_S} s")


def _flush(producer: confluent_kafka.Producer) -> None:
    left = producer.flush(STALLED_S)
    if left:
        raise BenchFailed(f"{left} messages still undelivered after {STALLED_S} s")


def _expect_bytes(seen: int, wanted: int) -> None:
    if seen != wanted:
        raise BenchFailed(f"{seen} bytes were read where {wanted} were written")
