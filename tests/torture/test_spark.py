"""Short versions of `make torture` with TORTURE_ARGS=sink and TORTURE_ARGS=pipelines."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.messages import Wrong

pytest.importorskip("pyspark", reason="needs the extra spark")

ROUNDS = 10
# One for each kind of process that may die. They kill twice as many: several workers at once, say.
ROUNDS_OF_PIPELINES = 6


def test_a_write_that_was_refused_and_is_there_all_the_same_is_noticed() -> None:
    from moldau.spark.sink.committing import Fenced
    from tests.torture.sink_count import after_failure, compare_writes
    from tests.torture.sink_driver import ROWS_OF_A_WRITE

    fenced = f"org.apache.spark.SparkException: {Fenced('write', 'run', None)}"
    ledger = after_failure(["7.0", "7.1", "7.2"], {"7.0"}, fenced)
    assert ledger == {"7.1": False, "7.2": False}
    there = [f"7.1 {number}".encode() for number in range(ROWS_OF_A_WRITE)]
    with pytest.raises(Wrong, match=r"write 7\.1 was not decided, and is there"):
        compare_writes(there, ledger)
    # Its driver does not know.
    ledger = after_failure(["7.0", "7.1"], (), "Python worker exited unexpectedly")
    assert ledger == {"7.0": None, "7.1": False}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found in /proc")
@pytest.mark.parametrize("what", ["sink", "pipelines"])
def test_every_row_is_there_once_whatever_dies(tmp_path: Path, what: str) -> None:
    from tests.torture.pipelines import PipelineTorture
    from tests.torture.sink import SinkTorture

    seed = random.randrange(1 << 32)
    torture: SinkTorture | PipelineTorture
    if what == "sink":
        torture, rounds = SinkTorture(tmp_path, seed, say=print), ROUNDS
    else:
        torture = PipelineTorture(tmp_path, seed, say=print, is_short=True)
        rounds = ROUNDS_OF_PIPELINES
    try:
        torture.run(lambda done: done >= rounds)
    except Wrong as problem:
        deeds = "\n".join(torture.last_deeds)
        pytest.fail(f"seed {seed}: {problem}\n{deeds}")
