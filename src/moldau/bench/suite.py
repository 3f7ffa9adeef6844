"""A whole run: the chosen measurements one after another, and nothing left behind."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from moldau.bench import machine
from moldau.bench.child import Children
from moldau.bench.errors import Unavailable
from moldau.bench.measure import MEASUREMENTS, Measurement
from moldau.bench.results import Report, Row
from moldau.bench.scale import Scale
from moldau.bench.workbench import Workbench


def run_suite(
    scale: Scale,
    *,
    measurements: Mapping[str, Measurement] = MEASUREMENTS,
    only: Sequence[str] = (),
    parent: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
    on_row: Callable[[Row], None] = lambda row: None,
    command: Sequence[str] = (),
) -> Report:
    """Run the measurements named in `only`, or all; data lies in a fresh folder under `parent`.

    `command` is the `moldau` to measure, if it is not this one.

    Processes and data are gone when this returns or raises, Ctrl-C and SIGTERM included.
    """
    machine.require_linux()
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    with _ends_on_sigterm(), _folder(parent) as folder, Children(folder) as children:
        about = machine.describe(folder)
        for name, measure in measurements.items():
            if only and name not in only:
                continue
            own_folder = folder / name
            own_folder.mkdir()
            try:
                for row in measure(Workbench(scale, own_folder, children, say, command)):
                    rows.append(row)
                    on_row(row)
            except Unavailable as reason:
                skipped[name] = str(reason)
    return Report(about, scale.name, tuple(rows), skipped)


@contextmanager
def _folder(parent: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="moldau-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ends_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, so that the blocks around a measurement clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
