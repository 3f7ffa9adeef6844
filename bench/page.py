"""RESULTS.md: what the newest run of each kind has found, from the figures kept beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.kafka import markdown as comparison
from bench.kafka.comparison import Report as Comparison
from bench.kafka.plots import drawn_in
from moldau.bench import markdown as alone
from moldau.bench.results import Report

HERE = Path(__file__).parent
COMPARISON = "kafka.json"
ALONE = "results.json"


R = TypeVar("R", Comparison, Report)


def keep(report: Comparison | Report, folder: Path = HERE) -> None:
    """Keeps the figures of a whole run in `folder`, and writes the page anew."""
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=2)
    (folder / _name(report)).write_bytes(encoded + b"\n")
    (folder / "RESULTS.md").write_text(_page(folder))


def keep_some(report: R, order: Iterable[str], folder: Path = HERE) -> None:
    """Puts the figures of some measurements in the place of what the last whole run has of them.

    Ratios are taken within a measurement, so each row stays one of one run. The page says which
    were measured later, and when.
    """
    whole = msgspec.json.decode((folder / _name(report)).read_bytes(), type=type(report))
    places = {name: place for place, name in enumerate(order)}
    again = {row.measurement for row in report.rows}
    rows = [row for row in whole.rows if row.measurement not in again] + list(report.rows)
    rows.sort(key=lambda row: places.get(row.measurement, len(places)))
    later = {f"{name}, measured later": report.machine["date"] for name in sorted(again)}
    skipped = {name: why for name, why in whole.skipped.items() if name not in again}
    keep(
        msgspec.structs.replace(
            whole, rows=tuple(rows), machine=whole.machine | later, skipped=skipped
        ),
        folder,
    )


def _name(report: Comparison | Report) -> str:
    return ALONE if isinstance(report, Report) else COMPARISON


def _page(folder: Path) -> str:
    parts = ["# Results\n"]
    if (folder / COMPARISON).exists():
        compared = msgspec.json.decode((folder / COMPARISON).read_bytes(), type=Comparison)
        parts.append(comparison.markdown(compared, drawn_in(folder)))
    if (folder / ALONE).exists():
        report = msgspec.json.decode((folder / ALONE).read_bytes(), type=Report)
        parts.append(alone.markdown(report))
    return "\n".join(parts)
