"""Acknowledged writes where each must be on disk first, against what the disk can do alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from moldau.bench.results import Row, Target, figure
from moldau.bench.tasks import ManyProducers, RequestFlow
from moldau.bench.workbench import Workbench

PRODUCERS = (1, 10, 100)
_MESSAGE_SIZE = 100
# The size of a small batch in the file, so that both sides append as much before each fsync.
_APPENDED = 170


def measure_flush(bench: Workbench) -> Iterator[Row]:
    rates: list[float] = []
    flows: dict[int, list[RequestFlow]] = {count: [] for count in PRODUCERS}
    with bench.broker() as broker:
        topics = {count: bench.new_topic() for count in PRODUCERS}
        for topic in topics.values():
            broker.create_topic(topic, configs={"flush.messages": "1"})
        for sample in range(bench.scale.repeats):
            bench.say(f"flush: sample {sample + 1} of {bench.scale.repeats}")
            rates.append(fsync_rate(bench.folder / "probe", bench.scale.requests_s))
            for count in PRODUCERS:
                task = ManyProducers(
                    broker.host,
                    broker.port,
                    topics[count],
                    broker.pid,
                    size=_MESSAGE_SIZE,
                    producers=count,
                    seconds=bench.scale.requests_s,
                    warm_up_s=bench.scale.requests_s / 4,
                )
                flows[count].append(bench.children.run(task, RequestFlow))
        for count in PRODUCERS:
            sent = sum(flow.total_requests for flow in flows[count])
            broker.expect_messages(topics[count], sent)
    figures = [figure("the disk's own fsync rate", "1/s", rates)]
    for count in PRODUCERS:
        done = [flow.requests / flow.seconds for flow in flows[count]]
        shares = [rate / alone for rate, alone in zip(done, rates, strict=True)]
        target = Target(1.0, at_least=True) if count > 1 else None
        figures.append(figure(f"{count} producers", "req/s", done))
        figures.append(figure(f"{count} producers to fsync rate", "x", shares, target))
    yield Row("flush", "Produce of 100 B with flush.messages=1, acks=all", tuple(figures))


def fsync_rate(path: Path, seconds: float) -> float:
    """Return how often a second a small append to a file can be forced to disk, one after
    another."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        content = b"x" * _APPENDED
        count = 0
        started = time.monotonic()
        while time.monotonic() < started + seconds:
            os.write(descriptor, content)
            os.fsync(descriptor)
            count += 1
        return count / (time.monotonic() - started)
    finally:
        os.close(descriptor)
        path.unlink()
