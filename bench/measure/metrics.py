"""The cost of metrics: a broker scraped each second beside one without HTTP, and a scrape."""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from bench.measure.pairs import Cost, costs_in_turns
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.proc import cpu_seconds
from moldau.bench.results import Row, Target, figure
from moldau.bench.tasks import Produce, RequestFlow, SmallRequests
from moldau.bench.workbench import Workbench
from moldau.local.ports import free_ports

_PIPELINED = 100
_SMALL, _LARGE = 100, 1024
_SCRAPES = 20
_MOST = Target(2)
# Bulk writes should cost nothing more, as far as that can be told.
_NOTHING = Target(1)
# What bulk writes cost scatters by more than a scrape does: half a percent of a core each second.
_MOST_OF_ONE_MS = Target(5)
_MOST_OF_ALL_MS = Target(100)
_LOOP_S = re.compile(r"^moldau_scrape_seconds_total (\S+)$", re.MULTILINE)
_STALL_S = re.compile(r"^moldau_loop_longest_stall_seconds (\S+)$", re.MULTILINE)


def measure_metrics(bench: Workbench) -> Iterator[Row]:
    yield _compared(bench, f"Produce of 100 B, pipelined, {_PIPELINED}", "request", _small, _MOST)
    # What the kernel takes for bulk writes scatters by a third on one machine.
    yield _compared(bench, "Produce in bulk, 1 KiB", "message", _bulk, _NOTHING, 4)
    yield _scrapes(bench, 1, _MOST_OF_ONE_MS)
    yield _scrapes(bench, bench.scale.partitions, _MOST_OF_ALL_MS)


def _compared(
    bench: Workbench,
    title: str,
    unit: str,
    cost: Cost,
    most: Target,
    samples_per_repeat: int = 1,
) -> Row:
    (port,) = free_ports(1)
    off, on = costs_in_turns(
        bench,
        f"metrics, {title}",
        ((), [f"http.listen=127.0.0.1:{port}"]),
        cost,
        beside=lambda: _scraped_each_second(port),
        samples_per_repeat=samples_per_repeat,
    )
    # Two brokers without HTTP differ, too.
    halves = median(off[::2]), median(off[1::2] or off)
    return Row(
        "metrics",
        title,
        (
            figure(f"broker CPU per {unit}, without HTTP", "us", off),
            figure(f"broker CPU per {unit}, scraped each second", "us", on),
            figure("more with metrics", "%", [_more(median(off), median(on))], most),
            figure("one half without HTTP to the other", "%", [_more(min(halves), max(halves))]),
        ),
    )


def _more(less: float, more: float) -> float:
    return 100 * (more / less - 1)


def _small(bench: Workbench, broker: BrokerUnderTest) -> float:
    return small_requests_cost(bench, broker, _PIPELINED)


def small_requests_cost(bench: Workbench, broker: BrokerUnderTest, in_flight: int) -> float:
    """Return how many microseconds of CPU a small Produce request costs the broker."""
    topic = bench.new_topic()
    broker.create_topic(topic)
    seconds = bench.scale.requests_s
    task = SmallRequests(
        broker.host,
        broker.port,
        topic,
        broker.pid,
        size=_SMALL,
        in_flight=in_flight,
        seconds=seconds,
        warm_up_s=seconds / 4,
    )
    flow = bench.children.run(task, RequestFlow)
    broker.expect_messages(topic, flow.total_requests)
    return flow.broker_cpu_s * 1e6 / flow.requests


def _bulk(bench: Workbench, broker: BrokerUnderTest) -> float:
    topic = bench.new_topic()
    broker.create_topic(topic)
    count = bench.scale.throughput_bytes // _LARGE // 2
    flow = bench.produce(
        Produce(broker.bootstrap, topic, broker.pid, _LARGE, count, warm_up=count // 10)
    )
    broker.delete_topic(topic)
    broker.wait_quiet()
    return flow.broker_cpu_s * 1e6 / flow.messages


def _scrapes(bench: Workbench, count: int, most: Target) -> Row:
    (port,) = free_ports(1)
    partitions = "1 partition" if count == 1 else f"{count:,} partitions"
    bench.say(f"metrics: scrapes of {partitions}")
    broker = bench.start_broker(settings=[f"http.listen=127.0.0.1:{port}"])
    try:
        broker.wait_ready()
        for _ in range(topics := min(count, 10)):
            broker.create_topic(bench.new_topic(), count // topics)
        broker.wait_quiet()
        text = _scrape(port)
        before = float(_LOOP_S.findall(text)[0])
        took, cpu = [], []
        for _ in range(_SCRAPES):
            began, spent = time.monotonic(), cpu_seconds(broker.pid)
            text = _scrape(port)
            took.append((time.monotonic() - began) * 1000)
            cpu.append((cpu_seconds(broker.pid) - spent) * 1000)
        in_loop = (float(_LOOP_S.findall(text)[0]) - before) * 1000 / _SCRAPES
        return Row(
            "metrics",
            f"a scrape of {partitions}, {text.count(chr(10)):,} lines",
            (
                figure("CPU time of the broker in all", "ms", [sum(cpu) / len(cpu)], most),
                figure("of that, collecting", "ms", [in_loop]),
                figure("time until the answer", "ms", took),
                figure(
                    "longest stall since the start, creation included",
                    "ms",
                    [float(_STALL_S.findall(text)[0]) * 1000],
                ),
            ),
        )
    finally:
        broker.discard()


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read(), "utf-8")


@contextmanager
def _scraped_each_second(port: int) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.wait(1.0):
            _scrape(port)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
