"""A short version of `make torture TORTURE_ARGS=sink`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.messages import Wrong

pytest.importorskip("pyspark", reason="needs the extra spark")

ROUNDS = 10


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found in /proc")
def test_every_row_is_there_once_whatever_dies(tmp_path: Path) -> None:
    from tests.torture.sink import SinkTorture

    seed = random.randrange(1 << 32)
    torture = SinkTorture(tmp_path, seed, say=print)
    try:
        torture.run(lambda rounds: rounds >= ROUNDS)
    except Wrong as problem:
        deeds = "\n".join(torture.last_deeds)
        pytest.fail(f"seed {seed}: {problem}\n{deeds}")
