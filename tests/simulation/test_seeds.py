"""Seeds that must not fail: a few always, dozens of them in the slow tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.simulation.report.story import page, text
from tests.simulation.scenario.outcome import Outcome
from tests.simulation.scenario.play import OTHER, play
from tests.simulation.scenario.scenario import Fault, Load, Scenario, scenario, themed
from tests.simulation.scenario.shrink import shrink

_ROOT = Path(__file__).parents[2]
_SEEDS = 24
# A client that was kept waiting for what it had lost; a log whose first segment was forgotten; a
# transaction that counted as decided by a marker that could still be lost; a wrong bit in an index
# of aborted transactions; markers that were answered before all of them were written; what a
# follower had cut off came back after a power failure, or did among what it had copied since; an
# epoch that was taken, after a crash, for later than it began; the log of a deleted topic came back
# after a power failure, and was taken for that of a new one; a session ended just when it was
# elected, and the next one went on as the controller. And five that were wrongly called failures: a
# group's commit that was given up came after the next one; a producer asked a coordinator that had
# yet to hear that its session was over; a member that had more to give up committed in its epoch,
# which counts for what others have got by then; the last words of a broker came after its disk was
# lost; a bit that flipped made another number of where an epoch began.
_FOUND = (
    273, 375, 399, 637, 679, 691, 781, 795, 840, 842, 874, 937, 1186, 1741, 5053, 5187,
)  # fmt: skip
# A follower kept what was never committed, since its leader had an epoch begin too late: compaction
# had taken that epoch's first batches away before the leader copied it.
_FOUND_WITH_THEMES = (("compaction", 14),)
_OTHERS = (
    "in sync", "lives", "zookeeper", "late transactions", "elections", "truncations", "reborn",
    "fsync", "stalls", "upgrades", "subscribers", "sharing",
)  # fmt: skip


@pytest.mark.parametrize(
    "theme",
    [
        "leaders",
        "power",
        "transactions",
        *(pytest.param(each, marks=pytest.mark.slow) for each in _OTHERS),
    ],
)
def test_a_few_seeds_break_no_promise(theme: str) -> None:
    outcome = play(themed(1, theme, 15.0))
    assert outcome.failure is None, f"{theme}: {outcome.failure}"
    assert outcome.counts["acknowledged with acks=-1"]
    assert outcome.faults


@pytest.mark.parametrize("dialect", [1, 2])
def test_transactions_of_either_dialect_are_committed_and_aborted(dialect: int) -> None:
    wanted = themed(2, "transactions", 20.0)
    loads = tuple(replace(load, dialect=dialect) for load in wanted.loads)
    outcome = play(replace(wanted, loads=loads))
    assert outcome.failure is None, outcome.failure
    for what in ("commit", "abort", "transactional write", "transactional offset"):
        assert outcome.counts[f"{what} in TV{dialect}"]
    assert outcome.counts["read committed"] > 50


def test_compaction_goes_on_beside_transactions_and_kills() -> None:
    outcome = play(themed(1, "compaction", 10.0))
    assert outcome.failure is None, outcome.failure
    compacted = {what.split()[2][:-2] for _, _, what in outcome.story if "] compacted " in what}
    assert {"k", "__transaction_state"} <= compacted
    assert outcome.counts["compacted topic read"] > 5


@pytest.mark.slow
def test_subscribers_and_sharers_get_their_share_of_everything() -> None:
    """Without which the checks of their groups would have nothing to look at."""
    counts: Counter[str] = Counter()
    for theme, seed in product(("subscribers", "sharing"), range(3, 7)):
        outcome = play(themed(seed, theme, 40.0))
        assert outcome.failure is None, outcome.failure
        counts.update(outcome.counts)
    for what in (
        "partition given to a subscriber", "offset committed by a subscriber", "subscriber left",
        "subscriber crashed", "record shared", "ACCEPT confirmed", "RELEASE confirmed",
        "REJECT confirmed", "RENEW confirmed", "sharer left", "sharer crashed",
    ):  # fmt: skip
        assert counts[what], f"nothing of this kind: {what}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", _FOUND)
def test_a_seed_that_has_found_something_finds_it_no_more(seed: int) -> None:
    outcome = play(scenario(seed))
    assert outcome.failure is None, outcome.failure


@pytest.mark.slow
@pytest.mark.parametrize(("theme", "seed"), _FOUND_WITH_THEMES)
def test_a_theme_that_has_found_something_finds_it_no_more(theme: str, seed: int) -> None:
    outcome = play(themed(seed, theme))
    assert outcome.failure is None, outcome.failure


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_dozens_of_seeds_break_no_promise() -> None:
    for seed in range(_SEEDS):
        outcome = play(scenario(seed))
        assert outcome.failure is None, f"make simulate SEED={seed}: {outcome.failure}"


@pytest.mark.slow
def test_seeds_are_run_in_several_processes_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "3", "--lasts", "5"]
    path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    done = subprocess.run(
        [*command, "--jobs", "2"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=_ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "3 seeds, " in done.stdout
    assert " 0 failed" in done.stdout


@pytest.mark.slow
def test_a_failure_is_shrunk_and_told() -> None:
    """A scenario that fails because everything is asked to be well too soon."""

    def again(wanted: Scenario, messages: bool = False) -> object:
        outcome = play(wanted, messages=messages)
        if any(fault.kind == "wipe" for fault in wanted.faults):
            outcome.failure = "there is a wipe"
        return outcome

    wanted = themed(1, "lives", 8.0)
    assert len(wanted.faults) > 4
    wiped = Fault(5.0, "wipe", "any", 0.5, 0.5)
    first = play(
        Scenario(
            wanted.seed, 8.0, faults=(*wanted.faults, wiped), loads=wanted.loads,
            settings=wanted.settings, partitions=1,
        )
    )  # fmt: skip
    first.failure = "there is a wipe"
    smallest = shrink(first, 20.0, again)  # type: ignore[arg-type]
    assert [fault.kind for fault in smallest.scenario.faults] == ["wipe"]
    assert not smallest.scenario.loads
    told = play(smallest.scenario, messages=True)
    told.failure = "there is a wipe"
    assert "wipe: broker-" in text(told, told.story)
    assert "METADATA" in text(told, told.story) or "FETCH" in text(told, told.story)
    assert '<tr class="fault">' in page(told, told.story)


def test_what_fails_in_another_way_is_no_smaller_form_of_a_failure() -> None:
    first = Outcome(themed(1, "lives", 8.0), simulated_s=8.0)

    def again(smaller: Scenario) -> Outcome:
        outcome = Outcome(smaller, simulated_s=1.5)
        outcome.failure = "t-0 lacks 12 records" if len(smaller.faults) > 1 else "nobody got done"
        return outcome

    first.failure = "t-1 lacks 7 records"
    smallest = shrink(first, 20.0, again)
    assert smallest.failure == "t-0 lacks 12 records"
    assert len(smallest.scenario.faults) == 2


def test_a_topic_is_there_though_nobody_is_left_who_makes_it() -> None:
    loads = (Load("idempotent", "passing", every_s=0.5, topic=OTHER),)
    outcome = play(Scenario(1, 3.0, partitions=1, loads=loads))
    assert outcome.failure is None, outcome.failure
    assert outcome.counts["acknowledged with acks=-1"]
