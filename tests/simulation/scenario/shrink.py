"""Shrinking: the smallest scenario found that still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.scenario.outcome import Outcome
from tests.simulation.scenario.play import play
from tests.simulation.scenario.scenario import Scenario

Fails = Callable[[Scenario], Outcome]


def shrink(failed: Outcome, within_s: float = 60.0, again: Fails = play) -> Outcome:
    """Leave away faults and clients, and cut the time, for as long as it fails in the same way.

    A scenario that lacks something takes another course from there on, and may fail because of what
    it lacks.
    """
    until = time.monotonic() + within_s
    best = failed
    # Nothing that comes after the failure has a part in it.
    best = _first(best, iter([_cut(best)]), again, until) or best
    size = max(1, len(best.scenario.faults) // 2)
    while time.monotonic() < until:
        smaller = _first(best, _without(best.scenario, size), again, until)
        if smaller is not None:
            best = smaller
        elif size > 1:
            size //= 2
        else:
            break
    while (smaller := _first(best, _without_loads(best.scenario), again, until)) is not None:
        best = smaller
    return best


def _first(
    best: Outcome, candidates: Iterator[Scenario], again: Fails, until: float
) -> Outcome | None:
    for candidate in candidates:
        if time.monotonic() > until:
            return None
        outcome = again(candidate)
        if _way(outcome) == _way(best):
            return outcome
    return None


def _way(outcome: Outcome) -> list[str] | None:
    """What went wrong, but for the names and numbers of where and when."""
    if outcome.failure is None:
        return None
    return [word for word in outcome.failure.split() if word.strip(",.:;").isalpha()]


def _cut(failed: Outcome) -> Scenario:
    scenario = failed.scenario
    end_s = min(scenario.lasts_s, failed.simulated_s + 0.1)
    faults = tuple(fault for fault in scenario.faults if fault.at_s < end_s)
    return replace(scenario, lasts_s=end_s, faults=faults)


def _without(scenario: Scenario, size: int) -> Iterator[Scenario]:
    faults = scenario.faults
    for start in range(0, len(faults), size):
        yield replace(scenario, faults=faults[:start] + faults[start + size :])


def _without_loads(scenario: Scenario) -> Iterator[Scenario]:
    for load in scenario.loads:
        yield replace(scenario, loads=tuple(each for each in scenario.loads if each is not load))
