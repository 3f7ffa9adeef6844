"""Starting on data: after a clean stop, and after a kill."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Row, compared
from bench.kafka.sides import Bench, Side, wait_for_leaders
from moldau.bench.tasks import Produce

_MESSAGE_SIZE = 1024


def measure_restart(bench: Bench) -> Iterator[Row]:
    clean: dict[str, list[float]] = defaultdict(list)
    killed: dict[str, list[float]] = defaultdict(list)
    for side in bench.sides:
        for _ in range(bench.scale.restarts):
            first, second = _of(bench, side)
            clean[side.name].append(first)
            killed[side.name].append(second)
    size = bench.scale.restart_bytes / 1e9
    yield Row(
        "restart",
        f"start on {size:g} GB in one partition",
        (
            compared("after a clean stop, until the partition is served", "s", clean),
            compared("after kill -9, until the partition is served", "s", killed),
        ),
    )


def _of(bench: Bench, side: Side) -> tuple[float, float]:
    bench.say(f"restart: {side.name}")
    broker = side.make()
    broker.start()
    try:
        broker.wait_ready()
        topic = bench.new_topic(broker)
        count = bench.scale.restart_bytes // _MESSAGE_SIZE
        task = Produce(broker.bootstrap, topic, broker.pid, _MESSAGE_SIZE, count)
        bench.machine.produce(task)
        took = []
        for ends_cleanly in (True, False):
            if ends_cleanly:
                broker.stop_cleanly()
            else:
                # Something that no checkpoint has seen.
                more = Produce(broker.bootstrap, topic, broker.pid, _MESSAGE_SIZE, count // 10)
                bench.machine.produce(more)
                broker.child.stop()
            started = time.monotonic()
            broker.start()
            broker.wait_ready()
            wait_for_leaders(broker, topic, 1)
            took.append(time.monotonic() - started)
        broker.expect_messages(topic, count + 1 + count // 10 + 1)
    finally:
        broker.discard()
    return took[0], took[1]
