"""A producer's answer times while a consumer reads data that the page cache does not hold.

Three phases of one run: the producer alone; with a consumer of cached data, which shows what
sharing the processor costs; with the same consumer after the data was evicted, which shows what
reading from the disk adds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.scale import amounts_of
from bench.tasks import PacedRequests, RoundTrips
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.results import Figure, Row, figure, percentile
from moldau.bench.tasks import Consume, Flow, Produce
from moldau.bench.workbench import Workbench

RATE = 1000
_HOT_SIZE, _COLD_SIZE = 100, 1024
_PROBE_BYTES = 1 << 20

Window = tuple[float, float]


def measure_cold_reads(bench: Workbench) -> Iterator[Row]:
    with bench.broker() as broker:
        hot, cold = bench.new_topic(), bench.new_topic()
        broker.create_topic(hot)
        broker.create_topic(cold)
        count = amounts_of(bench.scale).cold_bytes // _COLD_SIZE
        bench.say("cold reads: writing the data")
        bench.children.run(Produce(broker.bootstrap, cold, broker.pid, _COLD_SIZE, count), Flow)

        paced = bench.children.begin(PacedRequests(broker.host, broker.port, hot, _HOT_SIZE, RATE))
        paced.line(timeout_s=30)
        bench.say("cold reads: the producer alone")
        alone = _alone(bench)
        bench.say("cold reads: a consumer of cached data")
        _read(bench, broker, cold, count)
        cached, _, _ = _reading(bench, broker, cold, count, evicted=False)
        bench.say("cold reads: a consumer of evicted data")
        evicted, cold_flows, shares = _reading(bench, broker, cold, count, evicted=True)
        paced.close_input()
        trips = paced.answer(RoundTrips, timeout_s=60)
        paced.stop()
    disk_rates = [f.messages * _COLD_SIZE / f.seconds / 1e6 for f in cold_flows]
    yield Row(
        "cold",
        f"producer at {RATE:,} req/s beside a consumer",
        (
            *_figures("alone", trips, [alone]),
            *_figures("cached data", trips, cached),
            *_figures("evicted data", trips, evicted),
            figure("consumer of evicted data", "MB/s", disk_rates),
            figure("share evicted before each reading", "%", [100 * share for share in shares]),
        ),
    )


def _alone(bench: Workbench) -> Window:
    started = time.monotonic()
    time.sleep(amounts_of(bench.scale).hot_s)
    return started, time.monotonic()


def _reading(
    bench: Workbench, broker: BrokerUnderTest, topic: str, count: int, *, evicted: bool
) -> tuple[list[Window], list[Flow], list[float]]:
    """Read the topic again and again for as long as a phase lasts.

    The results are when each reading ran, what it found, and the share evicted before it.
    """
    flows: list[Flow] = []
    shares: list[float] = []
    while not flows or sum(flow.seconds for flow in flows) < amounts_of(bench.scale).hot_s:
        if evicted:
            shares.append(evict(broker.segment_files(topic)))
        flows.append(_read(bench, broker, topic, count))
    return [(flow.started, flow.ended) for flow in flows], flows, shares


def _read(bench: Workbench, broker: BrokerUnderTest, topic: str, count: int) -> Flow:
    return bench.children.run(Consume(broker.bootstrap, topic, broker.pid, count), Flow)


def _figures(label: str, trips: RoundTrips, windows: list[Window]) -> list[Figure]:
    took = [
        seconds * 1000
        for sent, seconds in zip(trips.sent_s, trips.took_s, strict=True)
        if any(start <= sent < end for start, end in windows)
    ]
    if not took:
        return []
    return [
        figure(f"p50, {label}", "ms", [percentile(took, 50)]),
        figure(f"p99, {label}", "ms", [percentile(took, 99)]),
        figure(f"worst, {label}", "ms", [max(took)]),
    ]


def evict(files: list[Path]) -> float:
    """Write the files to disk and drop them from the page cache; the share that is gone."""
    probes = absent = 0
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            for position in range(0, os.fstat(descriptor).st_size, _PROBE_BYTES):
                probes += 1
                absent += not _is_cached(descriptor, position)
        finally:
            os.close(descriptor)
    return absent / probes if probes else 0.0


def _is_cached(descriptor: int, position: int) -> bool:
    try:
        os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT)
    except OSError:
        # Not there now; or a file system without RWF_NOWAIT, which cannot be asked.
        return False
    return True
