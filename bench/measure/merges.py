"""Merges: scattered upserts into a large lake table, in time and in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal, get_args

from bench.scale import amounts_of
from bench.tasks import Merged, MergeScattered
from moldau.bench.errors import Unavailable
from moldau.bench.measure.spark_process import require_spark
from moldau.bench.results import Row, Target, figure
from moldau.bench.workbench import Workbench

Kind = Literal["delta", "iceberg"]
_CHANGES = 1000
_TIMEOUT_S = 900
# Reading what is written anew, looking for keys, and a commit come on top of the writing.
_TO_WRITING = Target(3.0)
_TO_SMALL = Target(1.5)


def measure_merges(bench: Workbench) -> Iterator[Row]:
    require_spark()
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        if kind == "iceberg" and find_spec("pyiceberg") is None:
            raise Unavailable("pyiceberg not installed: pip install 'moldau[iceberg]'")
        yield _row(bench, kind)


def _row(bench: Workbench, kind: Kind) -> Row:
    amounts = amounts_of(bench.scale)
    done: list[Merged] = []
    # Where nothing is repeated, nobody looks at the figures: one Spark is enough.
    for rows in amounts.merge_rows if bench.scale.repeats > 1 else amounts.merge_rows[-1:]:
        bench.say(f"merges into a {kind} table of {rows:,} rows")
        folder = bench.folder / f"merges-{kind}-{rows}"
        folder.mkdir()
        task = MergeScattered(kind, rows, _CHANGES, amounts.merges, str(folder))
        done.append(bench.children.run(task, Merged, _TIMEOUT_S))
        shutil.rmtree(folder)
    small, large = done[0], done[-1]
    fewer, most = amounts.merge_rows
    return Row(
        "merges",
        f"{_CHANGES:,} scattered upserts into a table of {most:,} rows, {kind}",
        (
            figure("a merge", "s", large.merges_s),
            figure("to write all its rows", "s", [large.write_s]),
            figure(
                "a merge to writing",
                "x",
                [each / large.write_s for each in large.merges_s],
                _TO_WRITING,
            ),
            figure("memory of Spark and its workers", "MiB", [large.memory_mib]),
            figure(f"the same with {fewer:,} rows", "MiB", [small.memory_mib]),
            figure(
                "memory, the large table to the small",
                "x",
                [large.memory_mib / small.memory_mib],
                _TO_SMALL,
            ),
        ),
    )
