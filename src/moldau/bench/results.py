"""Figures, the rows they form, and the report of a whole run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec


class Target(msgspec.Struct, frozen=True):
    """The goal of a figure: at most, or at least, `limit`."""

    limit: float
    at_least: bool = False

    def is_met_by(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def text(self, unit: str) -> str:
        return f"{'>=' if self.at_least else '<='} {number(self.limit)} {unit}".rstrip()


class Figure(msgspec.Struct, frozen=True):
    """One measured quantity: the median of its samples."""

    name: str
    unit: str
    median: float
    samples: tuple[float, ...]
    target: Target | None = None

    @property
    def is_met(self) -> bool | None:
        return None if self.target is None else self.target.is_met_by(self.median)


class Row(msgspec.Struct, frozen=True):
    """Everything that one measurement found out."""

    measurement: str
    title: str
    figures: tuple[Figure, ...]


class Report(msgspec.Struct, frozen=True):
    machine: dict[str, str]
    scale: str
    rows: tuple[Row, ...]
    skipped: dict[str, str]

    @property
    def missed(self) -> list[str]:
        """Names of the figures that have a target and do not reach it."""
        return [
            f"{row.title}: {figure.name}"
            for row in self.rows
            for figure in row.figures
            if figure.is_met is False
        ]


def figure(name: str, unit: str, samples: Sequence[float], target: Target | None = None) -> Figure:
    return Figure(name, unit, statistics.median(samples), tuple(samples), target)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100).__int__() - 1)]


def number(value: float) -> str:
    """Three significant digits for small numbers, whole ones with thousands marks for large."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
