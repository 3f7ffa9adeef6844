"""A short version of `make torture`."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.torture.messages import Wrong
from tests.torture.torture import Torture

_SECONDS = 10.0


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_broker_killed_again_and_again_keeps_its_promises(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    deadline = time.monotonic() + _SECONDS
    torture = Torture(tmp_path, seed, say=lambda text: None)
    try:
        torture.run(lambda cycles: cycles > 0 and time.monotonic() > deadline)
    except Wrong as problem:
        deeds = "\n".join(torture.last_deeds)
        pytest.fail(f"seed {seed}: {problem}\n{deeds}\n{torture.broker_log[-4000:]}")
    finally:
        torture.close()
    assert torture.cycles > 0
