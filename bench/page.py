"""RESULTS.md: what the newest run of each kind has found, from the figures kept beside it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.kafka import markdown as comparison
from bench.kafka.comparison import Report as Comparison
from bench.kafka.plots import drawn_in
from moldau.bench import markdown as alone
from moldau.bench.results import Report

HERE = Path(__file__).parent
COMPARISON = "kafka.json"
ALONE = "results.json"


def keep(report: Comparison | Report, folder: Path = HERE) -> None:
    """Keeps the figures of a run in `folder`, and writes the page anew."""
    name = ALONE if isinstance(report, Report) else COMPARISON
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=2)
    (folder / name).write_bytes(encoded + b"\n")
    (folder / "RESULTS.md").write_text(_page(folder))


def _page(folder: Path) -> str:
    parts = ["# Results\n"]
    if (folder / COMPARISON).exists():
        compared = msgspec.json.decode((folder / COMPARISON).read_bytes(), type=Comparison)
        parts.append(comparison.markdown(compared, drawn_in(folder)))
    if (folder / ALONE).exists():
        report = msgspec.json.decode((folder / ALONE).read_bytes(), type=Report)
        parts.append(alone.markdown(report))
    return "\n".join(parts)
