"""The measurements at the smallest scale: they run, count right, and leave nothing behind."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import ALL
from moldau.bench.results import Row
from moldau.bench.scale import TINY
from moldau.bench.suite import run_suite
from moldau.testing.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bench reads /proc")


# What is measured through Spark starts it; clusters need the ZooKeeper that comes with it.
NEED_SPARK = ("cluster", "failover", "decode", "merges", "spark", "spark-sink")
# The console's page is measured in a browser, once it is built.
NEED_BROWSER = ("console",)
# The others take longer, and are run with the slow tests.
QUICK = ("startup", "requests", "latency")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ALL],
)
def test_a_measurement_runs_at_tiny_scale_and_cleans_up(name: str, tmp_path: Path) -> None:
    shown: list[Row] = []
    # Spark, perhaps, which other tests share.
    before = set(_children_of(os.getpid(), "moldau"))
    report = run_suite(TINY, measurements=ALL, only=[name], parent=tmp_path, on_row=shown.append)
    if name in NEED_SPARK and report.skipped:
        assert "not installed: pip install 'moldau[spark]'" in report.skipped[name]
        pytest.skip(report.skipped[name])
    if name in NEED_BROWSER and report.skipped:
        pytest.skip(report.skipped[name])
    assert report.rows
    assert list(report.rows) == shown
    assert not report.skipped
    for row in report.rows:
        assert row.measurement == name
        for figure in row.figures:
            assert math.isfinite(figure.median), (row.title, figure.name)
            # Only a difference may be less than nothing.
            is_difference = figure.name.startswith(("more with", "cost of the check"))
            assert is_difference or figure.median >= 0, (row.title, figure.name)
    assert not list(tmp_path.iterdir())
    assert not set(_children_of(os.getpid(), "moldau")) - before


def test_every_measurement_is_explained() -> None:
    explained = Path("docs/benchmarks.md").read_text()
    assert not [name for name in ALL if f"\n### {name}\n" not in explained]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_and_no_data(number: int, tmp_path: Path) -> None:
    words = ["-m", "moldau", "bench", "--only", "latency", "--folder", str(tmp_path)]
    bench = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE)
    try:
        children = until(lambda: _children_of(bench.pid, "moldau.bench.load"))
        bench.send_signal(number)
        assert bench.wait(60) != 0
    finally:
        bench.kill()
        bench.communicate()
    assert not list(tmp_path.iterdir())
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def _children_of(pid: int, word: str) -> list[int]:
    """Running children of a process, if one of them has `word` in its command line."""
    found: dict[int, str] = {}
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in listing.read_text().split():
                found[int(child)] = Path(f"/proc/{child}/cmdline").read_text()
        except OSError:
            continue
    return list(found) if any(word in line for line in found.values()) else []
