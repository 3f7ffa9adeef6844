"""Comparisons: what a measurement found out about each side, and the ratio of the two."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

MOLDAU = "Moldau"


class Goal(msgspec.Struct, frozen=True):
    """What Moldau's advantage must at least be, as `Compared.advantage` counts it."""

    factor: float

    def text(self) -> str:
        return f">= {self.factor:g} x"


class Compared(msgspec.Struct, frozen=True):
    """One quantity, measured on every side."""

    name: str
    unit: str
    samples: dict[str, tuple[float, ...]]
    more_is_better: bool = False
    goal: Goal | None = None

    def median(self, side: str) -> float:
        return statistics.median(self.samples[side])

    def advantage(self, side: str) -> float:
        """How many times better Moldau is than `side`; below one it is worse."""
        ours, theirs = self.median(MOLDAU), self.median(side)
        if self.more_is_better:
            return ours / theirs if theirs else float("inf")
        return theirs / ours if ours else float("inf")


class Row(msgspec.Struct, frozen=True):
    """Everything that one measurement found out."""

    measurement: str
    title: str
    compared: tuple[Compared, ...]
    note: str = ""


class Report(msgspec.Struct, frozen=True):
    machine: dict[str, str]
    scale: str
    sides: tuple[str, ...]
    rows: tuple[Row, ...]
    skipped: dict[str, str]


def compared(
    name: str,
    unit: str,
    samples: Mapping[str, Sequence[float]],
    *,
    more: bool = False,
    goal: float | None = None,
) -> Compared:
    return Compared(
        name,
        unit,
        {side: tuple(values) for side, values in samples.items()},
        more,
        None if goal is None else Goal(goal),
    )
