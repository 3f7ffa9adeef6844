"""Log size: whether a message costs the same on a long log as on a short one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

from bench.scale import amounts_of
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.errors import Unavailable
from moldau.bench.measure.flows import cpu_us_per_message
from moldau.bench.results import Figure, Row, Target, figure
from moldau.bench.tasks import Consume, Flow, Produce
from moldau.bench.workbench import Workbench

_MESSAGE_SIZE = 1024
_SAMPLES = 3
_SPARE_BYTES = 2_000_000_000


def measure_log_size(bench: Workbench) -> Iterator[Row]:
    short, long = amounts_of(bench.scale).log_bytes
    slice_bytes = amounts_of(bench.scale).log_slice_bytes
    needed = long + (_SAMPLES + 1) * slice_bytes + _SPARE_BYTES
    if shutil.disk_usage(bench.folder).free < needed:
        raise Unavailable(f"needs {needed / 1e9:.0f} GB of free disk in {bench.folder}")
    with bench.broker() as broker:
        log = _GrowingLog(bench, broker)
        figures: list[Figure] = []
        medians: list[tuple[float, float]] = []
        for size in (short, long):
            log.grow_to(size)
            label = f"{size / 1e9:g} GB"
            bench.say(f"log size: measuring at {label}")
            produced = [log.append() for _ in range(_SAMPLES)]
            consumed = [log.read_last() for _ in range(_SAMPLES)]
            produce = figure(
                f"produce CPU at {label}", "us/msg", [cpu_us_per_message(f) for f in produced]
            )
            consume = figure(
                f"consume CPU at {label}", "us/msg", [cpu_us_per_message(f) for f in consumed]
            )
            rate = figure(
                f"produce at {label}", "msg/s", [f.messages / f.seconds for f in produced]
            )
            figures += [produce, consume, rate]
            medians.append((produce.median, consume.median))
    (produce_short, consume_short), (produce_long, consume_long) = medians
    figures.append(
        figure("produce cost, long to short", "x", [produce_long / produce_short], Target(1.1))
    )
    figures.append(
        figure("consume cost, long to short", "x", [consume_long / consume_short], Target(1.1))
    )
    yield Row("log-size", "1 KiB on a short and a long log", tuple(figures))


class _GrowingLog:
    """One partition that grows slice by slice.

    After each slice the files are flushed, so that the kernel's write-back of one slice does not
    slow the next, and dirty pages never reach the limit at which writers are made to wait.
    """

    def __init__(self, bench: Workbench, broker: BrokerUnderTest) -> None:
        self._bench = bench
        self._broker = broker
        self._slice = amounts_of(bench.scale).log_slice_bytes // _MESSAGE_SIZE
        self.topic = bench.new_topic()
        broker.create_topic(self.topic)
        self._messages = 0

    def grow_to(self, size: int) -> None:
        while self._messages * _MESSAGE_SIZE < size:
            gigabytes = self._messages * _MESSAGE_SIZE / 1e9
            self._bench.say(f"log size: {gigabytes:.1f} of {size / 1e9:g} GB written")
            self._append(lambda task: self._bench.children.run(task, Flow))

    def append(self) -> Flow:
        """Produce one slice, measured."""
        return self._append(self._bench.produce)

    def _append(self, run: Callable[[Produce], Flow]) -> Flow:
        warm_up = self._slice // 20
        task = Produce(
            self._broker.bootstrap,
            self.topic,
            self._broker.pid,
            _MESSAGE_SIZE,
            self._slice,
            warm_up=warm_up,
        )
        flow = run(task)
        self._messages += self._slice + max(warm_up, 1)
        self._broker.expect_messages(self.topic, self._messages)
        for path in self._broker.segment_files(self.topic)[-2:]:
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        return flow

    def read_last(self) -> Flow:
        """Consume the youngest slice, which the page cache still holds."""
        offset = self._messages - self._slice
        task = Consume(
            self._broker.bootstrap, self.topic, self._broker.pid, self._slice, offset=offset
        )
        return self._bench.children.run(task, Flow)
