"""Starting on much data: after a clean stop, and after a kill."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from moldau.bench.errors import Unavailable
from moldau.bench.offline import fill, open_logs
from moldau.bench.proc import bytes_read
from moldau.bench.results import Row, Target, figure
from moldau.bench.tasks import Flow, Produce
from moldau.bench.workbench import Workbench

_MESSAGE_SIZE = 1024
_SPARE_BYTES = 2_000_000_000
# Long enough that no checkpoint comes between the load and the kill.
_SETTINGS = ("log.flush.offset.checkpoint.interval.ms=3600000",)


def measure_recovery(bench: Workbench) -> Iterator[Row]:
    scale = bench.scale
    needed = max(scale.clean_start_bytes, sum(scale.recovery_bytes)) + _SPARE_BYTES
    if shutil.disk_usage(bench.folder).free < needed:
        raise Unavailable(f"needs {needed / 1e9:.0f} GB of free disk in {bench.folder}")
    yield _clean_start(bench)
    yield _after_a_kill(bench)


def _clean_start(bench: Workbench) -> Row:
    partitions, size = bench.scale.clean_start_partitions, bench.scale.clean_start_bytes
    seconds: list[float] = []
    read: list[float] = []
    with bench.stopped_topic({}, partitions) as (folder, topic):
        with open_logs(folder) as store:
            for number in range(partitions):
                if number % 50 == 0:
                    bench.say(f"clean start: {number} of {partitions} partitions written")
                fill(store.logs[topic, number], size // partitions)
        for sample in range(bench.scale.repeats):
            bench.say(f"clean start: sample {sample + 1} of {bench.scale.repeats}")
            took, megabytes = _start(bench, folder, ends_cleanly=True)
            seconds.append(took)
            read.append(megabytes)
    return Row(
        "recovery",
        f"start after a clean stop, {size / 1e9:g} GB in {partitions:,} partitions",
        (
            figure("exec to ready line", "s", seconds, Target(2.0)),
            figure("read by the process until then", "MB", read),
        ),
    )


def _after_a_kill(bench: Workbench) -> Row:
    figures = []
    medians = []
    for size in bench.scale.recovery_bytes:
        label = f"{size / 1e9:g} GB"
        bench.say(f"recovery: writing {label}")
        with bench.stopped_topic({}) as (folder, topic):
            with open_logs(folder) as store:
                fill(store.logs[topic, 0], size)
            seconds = []
            for sample in range(bench.scale.repeats):
                bench.say(f"recovery of {label}: sample {sample + 1} of {bench.scale.repeats}")
                _write_and_kill(bench, folder, topic)
                seconds.append(_start(bench, folder, ends_cleanly=True)[0])
        found = figure(f"exec to ready line, log of {label}", "s", seconds)
        figures.append(found)
        medians.append(found.median)
    figures.append(figure("large log to small", "x", [medians[1] / medians[0]], Target(1.5)))
    tail = bench.scale.recovery_tail_bytes / 1e6
    return Row("recovery", f"start after a kill, {tail:g} MB not flushed", tuple(figures))


def _write_and_kill(bench: Workbench, folder: Path, topic: str) -> None:
    broker = bench.start_broker(data_dir=folder, settings=_SETTINGS)
    broker.wait_ready()
    count = bench.scale.recovery_tail_bytes // _MESSAGE_SIZE
    bench.children.run(Produce(broker.bootstrap, topic, broker.pid, _MESSAGE_SIZE, count), Flow)
    broker.child.stop()


def _start(bench: Workbench, folder: Path, *, ends_cleanly: bool) -> tuple[float, float]:
    """Seconds from exec to the ready line, and megabytes that the process read meanwhile."""
    started = time.monotonic()
    broker = bench.start_broker(data_dir=folder)
    broker.wait_ready()
    seconds = time.monotonic() - started
    megabytes = bytes_read(broker.pid) / 1e6
    if ends_cleanly:
        broker.stop_cleanly()
    else:
        broker.child.stop()
    return seconds, megabytes
