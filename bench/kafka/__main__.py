"""Measure Moldau beside Apache Kafka and write bench/RESULTS.md.

Data lies in a fresh folder under --folder until the end; processes and data are gone afterwards,
Ctrl-C and SIGTERM included.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

from bench.kafka.comparison import Report, Row
from bench.kafka.jars import java_version, kafka_version
from bench.kafka.markdown import markdown
from bench.kafka.measure import MEASUREMENTS
from bench.kafka.plots import draw
from bench.kafka.scale import FULL, TINY, Scale
from bench.kafka.sides import Bench
from bench.page import HERE, keep, keep_some
from moldau.bench import machine
from moldau.bench.child import Children
from moldau.bench.errors import BenchFailed, Unavailable

SKIPPED = 75


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="only see that every row works")
    parser.add_argument("--folder", type=Path, help="where the data goes until the end")
    parser.add_argument("--out", type=Path, default=HERE, help="where RESULTS.md and plots go")
    parser.add_argument(
        "--keep", action="store_true", help="put the rows of NAME... into RESULTS.md, among others"
    )
    parser.add_argument("only", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    asked = parser.parse_args()
    for name in asked.only:
        if name not in MEASUREMENTS:
            parser.error(f"{name!r} is none of {', '.join(MEASUREMENTS)}")
    signal.signal(signal.SIGTERM, _end)
    try:
        machine.require_linux()
        report = measure(TINY if asked.tiny else FULL, asked.only, asked.folder)
    except Unavailable as reason:
        print(f"The comparison is skipped: {reason}", file=sys.stderr)
        return SKIPPED
    except BenchFailed as problem:
        print(f"The comparison could not run: {problem}", file=sys.stderr)
        return 1
    print(markdown(report, {}))
    if not asked.only and not asked.tiny:
        try:
            draw(report, asked.out)
        except Unavailable as reason:
            print(f"No plots: {reason}", file=sys.stderr)
        keep(report, asked.out)
    elif asked.keep:
        keep_some(report, MEASUREMENTS, asked.out)
    return 0


def measure(scale: Scale, only: list[str], parent: Path | None) -> Report:
    """Run the measurements named in `only`, or all."""
    about_kafka = f"{kafka_version()} on {java_version()}"
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True)

    rows: list[Row] = []
    skipped: dict[str, str] = {}
    folder = Path(tempfile.mkdtemp(prefix="moldau-kafka-", dir=parent))
    try:
        with Children(folder) as children:
            about = machine.describe(folder) | {"Apache Kafka": about_kafka}
            about |= {"pyspark": _version("pyspark")}
            sides: tuple[str, ...] = ()
            for name, measurement in MEASUREMENTS.items():
                if only and name not in only:
                    continue
                own = folder / name
                own.mkdir()
                bench = Bench(scale, own, children, say)
                sides = tuple(side.name for side in bench.sides)
                try:
                    rows += measurement(bench)
                except Unavailable as reason:
                    skipped[name] = str(reason)
                shutil.rmtree(own, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Report(about, scale.name, sides, tuple(rows), skipped)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
