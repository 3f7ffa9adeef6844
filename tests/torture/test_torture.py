"""Short versions of `make torture`."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from moldau.testing import Cluster
from tests.scenarios.play import TOPIC, Play
from tests.torture.disks import Disks
from tests.torture.faults import Faults
from tests.torture.messages import Wrong
from tests.torture.torture import Torture

_SECONDS = 10.0
_SESSION_S = 4.0
_PARTITIONS = 3


@pytest.mark.slow
@pytest.mark.timeout(400)
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_keeps_its_promises_through_each_fault(tmp_path: Path) -> None:
    """Those that no story of `tests/scenarios` tells, one after another under a flush policy."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    disks = Disks(tmp_path, dice)
    settings = {"zookeeper.session.timeout.ms": str(int(_SESSION_S * 1000))}
    with (
        disks.below(),
        Cluster(3, settings=settings, folder=tmp_path, can_be_cut=True) as cluster,
        Play(cluster, _PARTITIONS, writers=2, flush_messages=1) as play,
    ):
        faults = Faults(cluster, disks, dice, _SESSION_S, print)
        faults.aim_at(TOPIC, _PARTITIONS)
        for fault in (
            faults.power_failure,
            faults.power_failure_of_all,
            faults.slow_links,
            faults.elect_over_slow_links,
            faults.slow_fsync,
            faults.failing_fsync,
            faults.full_disk,
            faults.damage,
        ):
            play.go_on()
            fault()
            play.go_on()
            cluster.wait_until_in_sync(within_s=90)
