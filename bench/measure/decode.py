"""Decoding record batches to Arrow, without Spark: rows a core, and the memory of a task."""

from __future__ import annotations

from collections.abc import Iterator

from bench.scale import amounts_of
from bench.tasks import DecodeAlone, ReadAlone
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.measure.spark import LABELS, LARGE, SMALL, filled, repeats
from moldau.bench.measure.spark_process import require_spark
from moldau.bench.results import Row, Target, figure
from moldau.bench.tasks import RowFlow
from moldau.bench.workbench import Workbench

_DECODE = {SMALL: Target(5e6, at_least=True)}


def measure_decode(bench: Workbench) -> Iterator[Row]:
    require_spark()
    for size in (SMALL, LARGE):
        bench.say(f"decode at {LABELS[size]}")
        rows = max(1, amounts_of(bench.scale).decode_rows * SMALL // size)
        flows = [bench.children.run(DecodeAlone(size, rows), RowFlow) for _ in repeats(bench)]
        figures = (
            figure(
                "rows, one core", "rows/s", [f.rows / f.cpu_s for f in flows], _DECODE.get(size)
            ),
            figure("payload, one core", "MB/s", [f.rows * size / f.cpu_s / 1e6 for f in flows]),
        )
        yield Row("decode", f"record batches to Arrow, {LABELS[size]}", figures)
    with bench.broker() as broker:
        yield _task_memory(bench, broker)


def _task_memory(bench: Workbench, broker: BrokerUnderTest) -> Row:
    """A task's memory must not grow with what it reads."""
    few, many = amounts_of(bench.scale).memory_rows
    topic, _ = filled(bench, broker, many, LARGE, 1)
    small: list[RowFlow] = []
    large: list[RowFlow] = []
    for sample in repeats(bench):
        bench.say(f"memory of a reading task: sample {sample + 1} of {bench.scale.repeats}")
        for rows, flows in ((few, small), (many, large)):
            flows.append(bench.children.run(ReadAlone(broker.bootstrap, topic, rows), RowFlow))
    growth = [b.memory_mib / a.memory_mib for a, b in zip(small, large, strict=True)]
    return Row(
        "decode",
        "one reading task, 1 KiB",
        (
            figure("rows", "rows/s", [f.rows / f.seconds for f in large]),
            figure(f"memory, {few:,} rows", "MiB", [f.memory_mib for f in small]),
            figure(f"memory, {many:,} rows", "MiB", [f.memory_mib for f in large]),
            figure("large to small", "x", growth, Target(1.1)),
        ),
    )
