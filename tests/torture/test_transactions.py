"""A short version of `make torture TORTURE_ARGS=transactions`."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.scenarios.ledger import Wrong
from tests.torture.transactions import TransactionTorture

_SECONDS = 45.0
_KINDS = ("committed", "aborted", "inputs")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_transactions_show_no_anomaly_through_faults(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    deadline = time.monotonic() + _SECONDS
    torture = TransactionTorture(tmp_path, seed, say=lambda text: None)

    def is_over(faults: int) -> bool:
        # On a busy machine a whole round may have none of one kind, and shows nothing of it then.
        is_enough = not torture.rounds or all(torture.counts[each] for each in _KINDS)
        return faults > 0 and time.monotonic() > deadline and is_enough

    try:
        torture.run(is_over)
    except Wrong as problem:
        pytest.fail(f"seed {seed}: {problem}\n" + "\n".join(torture.last_deeds))
    assert all(torture.counts[each] > 0 for each in _KINDS)
