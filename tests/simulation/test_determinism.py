"""The same seed gives the same history, byte for byte, wherever and whenever it is run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.testing import Broker
from tests.simulation.scenario.outcome import Outcome
from tests.simulation.scenario.play import play
from tests.simulation.scenario.scenario import scenario, themed

_SEEDS = (3, 5)
_LASTS_S = 15.0
_ROOT = Path(__file__).parents[2]


def played(seed: int) -> Outcome:
    return play(scenario(seed, _LASTS_S))


def digests(seeds: Iterable[int] = _SEEDS, lasts_s: float = _LASTS_S) -> list[str]:
    return [play(scenario(seed, lasts_s)).digest for seed in seeds]


def digests_elsewhere(hash_seed: str, *more: object) -> list[str]:
    """In another process, as on another machine: other hashes, another time zone and language."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    environment |= {"TZ": "Pacific/Apia", "LC_ALL": "C", "PYTHONMALLOC": "malloc"}
    environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    code = f"from tests.simulation.test_determinism import digests; print(*digests{more})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=_ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout.split()


def test_a_seed_gives_the_same_history_twice_and_in_other_processes() -> None:
    first = digests()
    assert len(set(first)) == len(_SEEDS)
    assert digests() == first
    assert digests_elsewhere("1") == first


def test_the_first_history_of_a_process_is_as_those_that_follow() -> None:
    """Though what messages look like is loaded only once, when the first of their kind comes."""
    # Its producers speak the first dialect, whose versions nobody else uses.
    first, second = (play(themed(57, "transactions", 2.0)) for _ in range(2))
    assert (second.digest, second.story) == (first.digest, first.story)


@pytest.mark.slow
def test_many_seeds_give_the_same_histories_in_processes_with_other_hashes() -> None:
    wanted = (range(20, 40), 30.0)
    assert digests_elsewhere("3", *wanted) == digests_elsewhere("4", *wanted)


def test_a_seed_gives_the_same_history_after_unrelated_work() -> None:
    first = played(3)
    with Broker() as broker:
        assert broker.port
    random.seed(1)
    assert uuid.uuid4() != uuid.uuid4()
    second = played(3)
    assert (second.digest, second.story) == (first.digest, first.story)
    assert second.steps == first.steps


def test_other_scenarios_give_other_histories() -> None:
    one = scenario(3, _LASTS_S)
    assert play(one).digest != play(replace(one, faults=one.faults[1:])).digest


def test_a_simulation_leaves_clocks_randomness_and_files_as_they_were() -> None:
    import time

    from moldau.broker.partitions import partition
    from moldau.log.files import disk

    state = random.getstate()
    played(5)
    assert random.getstate() == state
    assert vars(partition)["time"] is time
    assert vars(disk)["os"] is os
    assert not hasattr(uuid.os, "disks")  # type: ignore[attr-defined]
