"""Two pictures of a report, where matplotlib is installed: throughput and latency."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bench.kafka.comparison import Compared, Report
from moldau.bench.errors import Unavailable

_PLOTS = {
    "Throughput": ("kafka-throughput.png", ("throughput",), "payload"),
    "Latency": ("kafka-latency.png", ("latency",), "p"),
}


def drawn_in(folder: Path) -> dict[str, str]:
    """The titles and files of the pictures in `folder`."""
    return {title: file for title, (file, *_) in _PLOTS.items() if (folder / file).exists()}


def draw(report: Report, folder: Path) -> None:
    """Draws the pictures into `folder`; Unavailable without matplotlib."""
    if find_spec("matplotlib") is None:
        raise Unavailable("matplotlib is not installed: pip install 'moldau[bench]'")
    for title, (file, measurements, prefix) in _PLOTS.items():
        (folder / file).unlink(missing_ok=True)
        bars = [
            (f"{row.title}\n" if prefix != "p" else "", compared)
            for row in report.rows
            if row.measurement in measurements
            for compared in row.compared
            if compared.name.startswith(prefix)
        ]
        if bars:
            _bars(title, bars, folder / file)


def _bars(title: str, bars: list[tuple[str, Compared]], file: Path) -> None:
    # Imported by name: it is an extra, and nobody else here needs its types.
    import_module("matplotlib").use("Agg")
    pyplot = import_module("matplotlib.pyplot")

    figure, axes = pyplot.subplots(figsize=(8, 4), dpi=120)
    sides = list(bars[0][1].samples)
    width = 0.8 / len(sides)
    for place, side in enumerate(sides):
        middles = [n - 0.4 + width * (place + 0.5) for n in range(len(bars))]
        heights = [compared.median(side) for _, compared in bars]
        lows = [h - min(c.samples[side]) for h, (_, c) in zip(heights, bars, strict=True)]
        highs = [max(c.samples[side]) - h for h, (_, c) in zip(heights, bars, strict=True)]
        axes.bar(middles, heights, width, label=side, yerr=[lows, highs], capsize=2)
    names = [f"{name}{'' if name else compared.name}".strip() for name, compared in bars]
    axes.set_xticks(range(len(bars)), names)
    axes.set_ylabel(bars[0][1].unit)
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)
