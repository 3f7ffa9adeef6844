"""A short version of `make torture TORTURE_ARGS=transactions`."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.scenarios.ledger import Wrong
from tests.torture.transactions import TransactionTorture

_SECONDS = 45.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_transactions_show_no_anomaly_through_faults(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    deadline = time.monotonic() + _SECONDS
    torture = TransactionTorture(tmp_path, seed, say=lambda text: None)
    try:
        torture.run(lambda faults: faults > 0 and time.monotonic() > deadline)
    except Wrong as problem:
        pytest.fail(f"seed {seed}: {problem}\n" + "\n".join(torture.last_deeds))
    assert torture.counts["committed"] > 0
    assert torture.counts["aborted"] > 0
    assert torture.counts["inputs"] > 0
