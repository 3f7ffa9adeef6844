"""Tallies: what many runs have come to."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.scenario.outcome import Outcome

_TELL_S = 10.0


@dataclass
class Result:
    """What is counted of a run, and what is to be told if it failed."""

    seed: int
    simulated_s: float
    cpu_s: float
    steps: int
    checks: int
    faults: dict[str, int]
    counts: dict[str, int]
    failure: str | None = None
    report: str = ""

    @classmethod
    def of(cls, outcome: Outcome) -> Result:
        return cls(
            outcome.scenario.seed,
            outcome.simulated_s,
            outcome.cpu_s,
            outcome.steps,
            outcome.checks,
            outcome.faults,
            outcome.counts,
            outcome.failure,
        )


@dataclass
class Tally:
    """What has been run so far."""

    began: float = field(default_factory=time.monotonic)
    seeds: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    steps: int = 0
    checks: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)
    told: float = field(default_factory=time.monotonic)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.simulated_s += result.simulated_s
        self.cpu_s += result.cpu_s
        self.steps += result.steps
        self.checks += result.checks
        self.faults.update(result.faults)
        self.counts.update(result.counts)
        if result.failure is not None:
            self.failed.append(result.seed)
            print(result.report, flush=True)
        if time.monotonic() - self.told > _TELL_S:
            self.told = time.monotonic()
            print(self, flush=True)

    def __str__(self) -> str:
        took_s = max(time.monotonic() - self.began, 1e-3)
        return (
            f"{self.seeds} seeds, {self.simulated_s / 3600:.1f} simulated hours in {took_s:.0f} s "
            f"({self.seeds / took_s:.1f} seeds and {self.simulated_s / took_s:.0f} simulated "
            f"seconds a second, {self.simulated_s / max(self.cpu_s, 1e-3):.0f} a second of CPU), "
            f"{sum(self.faults.values())} faults, {len(self.failed)} failed"
        )

    def details(self) -> str:
        faults = ", ".join(f"{count} {kind}" for kind, count in self.faults.most_common())
        counts = ", ".join(f"{count} {what}" for what, count in self.counts.most_common())
        return (
            f"{self.steps} steps, {self.checks} looked at closely\nfaults: {faults}\n"
            f"clients: {counts}"
        )
