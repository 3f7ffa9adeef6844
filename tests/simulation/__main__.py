"""Runs of many seeds: `make simulate [SEEDS=N] [MINUTES=M] [SEED=n] [JOBS=j]`.

Each core runs seeds of its own. On a failure: the seed, a shrunk scenario, and what happened as
text and as a page with a timeline.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator

from tests.simulation.report.runs import run_all
from tests.simulation.report.tally import Tally


def seeds_from(first: int, count: int, until: float) -> Iterator[int]:
    """Count on from the first, for so many (0: any number), and until then."""
    seed = first
    while (not count or seed < first + count) and time.monotonic() < until:
        yield seed
        seed += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="how many seeds; 0: no limit")
    parser.add_argument("--minutes", type=float, default=0.0, help="for how long; 0: no limit")
    parser.add_argument("--seed", type=int, default=None, help="this seed only")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--lasts", type=float, default=120.0, help="seconds of faults in each")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0: one for each core")
    options = parser.parse_args()
    count, minutes, first = options.seeds, options.minutes, options.first
    jobs = options.jobs or os.cpu_count() or 1
    if options.seed is not None:
        count, first, jobs = 1, options.seed, 0
    elif not count and not minutes:
        minutes = 2.0
    tally = Tally()
    until = tally.began + minutes * 60 if minutes else float("inf")
    for result in run_all(seeds_from(first, count, until), options.lasts, jobs):
        tally.add(result)
    print(f"{tally}\n{tally.details()}")
    if tally.failed:
        print(f"failed: {', '.join(map(str, sorted(tally.failed)))}")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
