"""From exec to the first answer, and the memory of a broker that has nothing to do."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

from bench.kafka.comparison import Row, compared
from bench.kafka.sides import Bench, wait_for_answer

_SETTLE_S = 2.0


def measure_startup(bench: Bench) -> Iterator[Row]:
    answers: dict[str, list[float]] = defaultdict(list)
    ready: dict[str, list[float]] = defaultdict(list)
    idle: dict[str, list[float]] = defaultdict(list)
    stops: dict[str, list[float]] = defaultdict(list)
    # The first start fills the page cache with the code, as any but the very first finds it.
    for sample in range(bench.scale.starts + 1):
        for side in bench.sides:
            bench.say(f"start-up: {side.name}, {sample} of {bench.scale.starts}")
            broker = side.make()
            started = time.monotonic()
            broker.start()
            try:
                wait_for_answer(broker.host, broker.port)
                answered = time.monotonic() - started
                broker.wait_ready()
                served = time.monotonic() - started
                time.sleep(_SETTLE_S)
                memory = broker.memory_mib()[0]
                stopped = broker.stop_cleanly()
            finally:
                broker.discard()
            if sample > 0:
                answers[side.name].append(answered * 1000)
                ready[side.name].append(served * 1000)
                idle[side.name].append(memory)
                stops[side.name].append(stopped)
    yield Row(
        "startup",
        "start and idle",
        (
            compared("exec to first answer", "ms", answers, goal=10),
            compared("exec to serving", "ms", ready, goal=10),
            compared("idle memory (RSS)", "MiB", idle, goal=5),
            compared("clean stop", "s", stops),
        ),
    )
