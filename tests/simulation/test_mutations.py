"""Safeguards that are taken out are missed: for each there is a seed that fails."""

from __future__ import annotations

import pytest

from tests.simulation.directed.scripts import SCRIPTS
from tests.simulation.mutations.cluster import CLUSTER
from tests.simulation.mutations.epochs import EPOCHS
from tests.simulation.mutations.fences import FENCES
from tests.simulation.mutations.groups import SHARING, SUBSCRIBERS
from tests.simulation.mutations.late import LATE_REPLICATION, LATE_SHARING, LATE_TRANSACTIONS
from tests.simulation.mutations.log import LOG
from tests.simulation.mutations.replication import REPLICATION
from tests.simulation.mutations.transactions import TRANSACTIONS
from tests.simulation.scenario.play import play

ALL = (
    *REPLICATION, *EPOCHS, *CLUSTER, *LOG, *TRANSACTIONS, *FENCES, *SUBSCRIBERS, *SHARING,
    *LATE_TRANSACTIONS, *LATE_REPLICATION, *LATE_SHARING,
)  # fmt: skip
MUTATIONS = {mutation.name: mutation for mutation in ALL}
# The product changes, and with it what a seed leads to: the next ones are tried, so many.
_SEEDS = 80


def test_every_mutation_changes_the_product() -> None:
    for mutation in MUTATIONS.values():
        with mutation.applied():
            pass
    assert len(MUTATIONS) >= 120
    assert len(MUTATIONS) == len(ALL)


def test_every_script_is_there_for_a_mutation() -> None:
    assert set(SCRIPTS) <= {mutation.theme for mutation in ALL}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_noticed(name: str) -> None:
    mutation = MUTATIONS[name]
    seeds = range(mutation.seed, mutation.seed + _SEEDS)
    with mutation.applied():
        noticed = (seed for seed in seeds if play(mutation.scenario(seed)).failure is not None)
        seed = next(noticed, None)
    assert seed is not None, f"none of {seeds} notices anything"
    # It is the mutation that was noticed.
    outcome = play(mutation.scenario(seed))
    assert outcome.failure is None
    if mutation.theme in SCRIPTS:
        assert outcome.counts["script played to its end"]
