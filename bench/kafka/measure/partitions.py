"""Many partitions: what they cost to create, to keep, to use and to start with."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Row, compared
from bench.kafka.sides import Bench, Side, wait_for_leaders
from moldau.bench.tasks import Produce

_MESSAGE_SIZE = 1024
_BATCH_MESSAGES = 64
_TOPICS = 10


def measure_partitions(bench: Bench) -> Iterator[Row]:
    """One side at a time: thousands of open files and mappings of three brokers are too many."""
    found: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for side in bench.sides:
        for name, value in _of(bench, side).items():
            found[name][side.name] = [value]
    partitions = bench.scale.partitions
    yield Row(
        "partitions",
        f"{partitions:,} partitions in {_TOPICS} topics",
        (
            compared("creation, until all have leaders", "s", found["created"]),
            compared("memory (RSS)", "MiB", found["memory"]),
            compared("produce 1 KiB to one topic's", "msg/s", found["rate"], more=True),
            compared("clean stop", "s", found["stopped"]),
            compared("exec to serving, after it", "s", found["restarted"]),
        ),
    )


def _of(bench: Bench, side: Side) -> dict[str, float]:
    each = bench.scale.partitions // _TOPICS
    bench.say(f"partitions: {side.name}, creating {each * _TOPICS:,}")
    broker = side.make()
    broker.start()
    try:
        broker.wait_ready()
        broker.admin.list_topics(timeout=30)
        started = time.monotonic()
        topics = [bench.machine.new_topic() for _ in range(_TOPICS)]
        for topic in topics:
            broker.create_topic(topic, each)
        for topic in topics:
            wait_for_leaders(broker, topic, each)
        created = time.monotonic() - started
        broker.wait_quiet()
        memory = broker.memory_mib()[0]
        task = Produce(
            broker.bootstrap,
            topics[0],
            broker.pid,
            _MESSAGE_SIZE,
            each * _BATCH_MESSAGES * 2,
            partitions=each,
            per_turn=_BATCH_MESSAGES,
            batch_messages=_BATCH_MESSAGES,
            warm_up=each * _BATCH_MESSAGES,
        )
        flow = bench.machine.produce(task)
        broker.expect_messages(topics[0], task.count + task.warm_up, each)
        stopped = broker.stop_cleanly()
        started = time.monotonic()
        broker.start()
        broker.wait_ready()
        restarted = time.monotonic() - started
    finally:
        broker.discard()
    return {
        "created": created,
        "memory": memory,
        "rate": flow.messages / flow.seconds,
        "stopped": stopped,
        "restarted": restarted,
    }
