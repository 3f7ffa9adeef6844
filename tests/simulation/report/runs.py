"""Runs of many seeds, in one process or several; what failed is shrunk and told.

Not in `__main__`: processes that are spawned from there could not find what to run.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.simulation.report.story import write
from tests.simulation.report.tally import Result
from tests.simulation.scenario.outcome import Outcome
from tests.simulation.scenario.play import play
from tests.simulation.scenario.scenario import scenario
from tests.simulation.scenario.shrink import shrink

_FOLDER = Path(".cache/simulation")
# What a process keeps for good, however little, is gone after so many seeds.
_SEEDS_PER_PROCESS = 50


def report(outcome: Outcome) -> str:
    """Tell of a failure: shrink it, play it once more with all messages, and write it down."""
    seed = outcome.scenario.seed
    smallest = shrink(outcome)
    told = play(smallest.scenario, messages=True)
    as_text, as_page = write(_FOLDER, told if told.failure is not None else smallest)
    return (
        f"\nSEED {seed} FAILED after {outcome.simulated_s:.1f} s: {outcome.failure}\n"
        f"shrunk to:\n{smallest.scenario}\nwhich fails: {smallest.failure}\n"
        f"what happened: {as_text} and {as_page}\n"
        f"again: make simulate SEED={seed}\n"
    )


def run(seed: int, lasts_s: float) -> Result:
    """Play the scenario of a seed; called in a process of its own if there are several."""
    outcome = play(scenario(seed, lasts_s))
    result = Result.of(outcome)
    if outcome.failure is not None:
        result.report = report(outcome)
    return result


def run_all(seeds: Iterator[int], lasts_s: float, jobs: int) -> Iterator[Result]:
    """Run one seed after the other, `jobs` at a time in processes of their own; 0: here."""
    if not jobs:
        for seed in seeds:
            yield run(seed, lasts_s)
        return
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=_SEEDS_PER_PROCESS,
    )
    with pool:
        running: set[Future[Result]] = set()
        for seed in seeds:
            running.add(pool.submit(run, seed, lasts_s))
            if len(running) >= jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        for each in running:
            yield each.result()
