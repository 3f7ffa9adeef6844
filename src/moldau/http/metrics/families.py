"""Families: metrics of one name, as text, in Prometheus' format or in OpenMetrics'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from moldau.broker.metrics import BUCKETS, Histogram

Kind = Literal["counter", "gauge", "histogram", "summary", "info"]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# The bounds that are shown: from 64 microseconds to 33 seconds. A finer look costs more than it
# tells.
_FIRST, _LAST = 6, 25
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels(**values: object) -> str:
    """Return labels as they are written behind a name."""
    pairs = [f'{key}="{str(value).translate(_ESCAPES)}"' for key, value in values.items()]
    return "{" + ",".join(pairs) + "}" if pairs else ""


@dataclass(slots=True)
class Family:
    """All samples of one metric; `lines` are whole, each with its newline."""

    name: str
    kind: Kind
    about: str
    lines: list[str] = field(default_factory=list)

    def add(self, value: float, labels: str = "") -> None:
        self.lines.append(f"{self.name}{labels} {value}\n")

    def head(self, *, is_open: bool) -> str:
        name, kind = self.name, self.kind
        if is_open:
            # A family of counters has no suffix there, but its samples do.
            name = name.removesuffix("_total") if kind == "counter" else name
        return f"# HELP {name} {self.about}\n# TYPE {name} {kind}\n"


class Families:
    """The families of one scrape, in the order of their names' first use."""

    def __init__(self) -> None:
        self.by_name: dict[str, Family] = {}

    def family(self, name: str, kind: Kind, about: str) -> Family:
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = Family(name, kind, about)
        return found

    def gauge(self, name: str, about: str, value: float, labels: str = "") -> None:
        self.family(name, "gauge", about).add(value, labels)

    def counter(self, name: str, about: str, value: float, labels: str = "") -> None:
        self.family(name, "counter", about).add(value, labels)

    def gauges(self, name: str, about: str, values: Iterable[tuple[str, float]]) -> None:
        family = self.family(name, "gauge", about)
        for labels, value in values:
            family.add(value, labels)

    def histogram(
        self, name: str, about: str, histogram: Histogram, given: Mapping[str, object]
    ) -> None:
        """Add a histogram of seconds."""
        lines = self.family(name, "histogram", about).lines
        total = sum(histogram.buckets[:_FIRST])
        for number in range(_FIRST, _LAST + 1):
            total += histogram.buckets[number]
            bound = labels(**given, le=repr((1 << number) / 1e6))
            lines.append(f"{name}_bucket{bound} {total}\n")
        total = histogram.count
        lines.append(f"{name}_bucket{labels(**given, le='+Inf')} {total}\n")
        lines.append(f"{name}_sum{labels(**given)} {histogram.seconds}\n")
        lines.append(f"{name}_count{labels(**given)} {total}\n")

    def render(self, *, is_open: bool) -> list[str]:
        """Return the text in pieces."""
        pieces: list[str] = []
        for family in self.by_name.values():
            if family.lines:
                pieces.append(family.head(is_open=is_open))
                pieces += family.lines
        if is_open:
            pieces.append("# EOF\n")
        return pieces


def quantile(buckets: list[int], share: float) -> float:
    """Return the seconds that this share of durations stays below, as exact as buckets can be."""
    wanted = share * sum(buckets)
    seen = 0
    for number, count in enumerate(buckets):
        if count and seen + count >= wanted:
            lower = (1 << number - 1) if number else 0
            upper = 1 << number if number < BUCKETS - 1 else lower
            return (lower + (upper - lower) * (wanted - seen) / count) / 1e6
        seen += count
    return 0.0
