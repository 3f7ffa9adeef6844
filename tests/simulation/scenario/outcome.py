"""Outcomes: what became of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.scenario.scenario import Scenario


@dataclass
class Outcome:
    """What became of a run."""

    scenario: Scenario
    failure: str | None = None
    simulated_s: float = 0.0
    took_s: float = 0.0
    cpu_s: float = 0.0
    steps: int = 0
    checks: int = 0
    story: list[tuple[float, str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    # Of everything that was sent, when, by whom and to whom: the same for the same seed.
    digest: str = ""
