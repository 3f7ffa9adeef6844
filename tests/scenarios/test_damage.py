"""A replica whose disk has failed gives up its place by itself, and is filled again by itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moldau.testing import Cluster, Ensemble
from moldau.wire.errors import Error
from tests.broker.wire_client import make_batch
from tests.scenarios.damage import (
    batches,
    connect,
    damage,
    first_segment,
    flip,
    is_met,
    set_aside,
)
from tests.scenarios.play import TOPIC, Play
from tests.torture.disks import Disks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# Nobody leaves the in-sync replicas because it is slow.
PATIENT = {"replica.lag.time.max.ms": 60_000}


class Patients:
    """A cluster whose disks can fail."""

    def __init__(self, ensemble: Ensemble, folder: Path) -> None:
        self._disks = Disks(folder, random.Random(0))
        self.cluster = Cluster(3, ensemble, PATIENT, folder=folder)

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        with self._disks.below(), self.cluster as cluster:
            yield cluster

    def fail(self, broker: int) -> None:
        """Have every fsync fail."""
        self._disks.set(self.cluster.data_dir(broker).name, fails=True)

    def mend(self, broker: int) -> None:
        self._disks.set(self.cluster.data_dir(broker).name)


@pytest.fixture
def patients(ensemble: Ensemble, tmp_path: Path) -> Patients:
    return Patients(ensemble, tmp_path / tmp_path.name)


def test_a_leader_with_damaged_data_hands_over_and_copies_it_anew(ensemble: Ensemble) -> None:
    with (
        Cluster(3, ensemble, PATIENT) as cluster,
        Play(cluster, partitions=1, index_interval_bytes=1_000_000) as play,
    ):
        play.go_on(50)
        leader = cluster.leader_of(TOPIC)
        segment = first_segment(cluster, leader, TOPIC)
        damage(segment, list(batches(segment))[3][0])
        with connect(cluster, leader) as client:
            end = play.ledger.end_of_acknowledged(play.places[0])
            assert is_met(client, TOPIC, range(end))
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) != leader, "another leads")
        play.go_on()
        # All three again, and at the end of the play their copies are the same.
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()
        assert len(set_aside(cluster, leader, TOPIC)) == 1
        log = cluster.log(leader).read_text()
        assert "will lead it, and it is copied again from there" in log
        assert "the damaged files are kept in" in log


def test_a_leader_that_sends_damaged_records_finds_them_and_hands_over(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble, PATIENT) as cluster, Play(cluster, partitions=1) as play:
        play.go_on(50)
        cluster.wait_until_in_sync(TOPIC)
        leader = cluster.leader_of(TOPIC)
        segment = first_segment(cluster, leader, TOPIC)
        flip(segment, list(batches(segment))[3][0])
        # Only who copies from the beginning comes upon it.
        victim = next(broker for broker in cluster.brokers if broker != leader)
        cluster.kill(victim)
        cluster.wipe(victim)
        cluster.start(victim)
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) != leader, "another leads")
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()
        assert len(set_aside(cluster, leader, TOPIC)) == 1


def test_a_leader_whose_fsync_fails_hands_over_and_trusts_nothing_that_it_has(
    patients: Patients,
) -> None:
    with (
        patients.running() as cluster,
        Play(cluster, partitions=1, flush_messages=1) as play,
    ):
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        patients.fail(leader)
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) != leader, "another leads")
        play.go_on()
        # Its new copy fails as well, again and again, and holds up nobody.
        cluster.wait_until(
            lambda: cluster.log(leader).read_text().count("copying everything again") > 1, "twice"
        )
        assert len(set_aside(cluster, leader, TOPIC)) <= 2
        patients.mend(leader)
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()


def test_two_of_three_disks_fail_at_once(patients: Patients) -> None:
    with (
        patients.running() as cluster,
        Play(cluster, partitions=1, flush_messages=1) as play,
    ):
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        # The one that comes next in the order of replicas, so that it is chosen to lead.
        replicas = cluster.view(leader).partitions[TOPIC, 0].replicas
        second = replicas[1] if replicas[0] == leader else replicas[0]
        patients.fail(leader)
        patients.fail(second)
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) not in (leader, second), "the third")
        patients.mend(leader)
        patients.mend(second)
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()


def test_a_follower_whose_fsync_fails_leaves_at_once_and_is_filled_again(
    patients: Patients,
) -> None:
    with (
        patients.running() as cluster,
        Play(cluster, partitions=1, flush_messages=1) as play,
    ):
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        follower = next(broker for broker in cluster.brokers if broker != leader)
        patients.fail(follower)
        cluster.wait_until(
            lambda: follower not in cluster.view(leader).partitions[TOPIC, 0].isr, "it is out"
        )
        play.go_on()
        patients.mend(follower)
        cluster.wait_until_in_sync(TOPIC)
        assert cluster.leader_of(TOPIC) == leader


def test_the_last_in_sync_replica_keeps_what_it_has(
    ensemble: Ensemble,
) -> None:
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("t", replication_factor=2, index_interval_bytes=1_000_000)
        leader = cluster.leader_of("t")
        other = next(r for r in cluster.view(leader).partitions["t", 0].replicas if r != leader)
        with connect(cluster, leader) as client:
            for number in range(40):
                assert client.produce("t", make_batch(b"%d" % number)).error_code == 0
            cluster.kill(other)
            cluster.wait_until(
                lambda: cluster.view(leader).partitions["t", 0].isr == (leader,), "alone"
            )
            segment = first_segment(cluster, leader, "t")
            damage(segment, list(batches(segment))[3][0])
            assert is_met(client, "t", range(40))
            cluster.wait_until(lambda: "stays offline" in cluster.log(leader).read_text(), "told")
            cluster.start(other)
            cluster.wait_until(lambda: cluster.view(leader).brokers >= {leader, other}, "back")
            # What came back was not in sync any more, and is no reason to throw anything away.
            refused = client.produce("t", make_batch(b"x"))
            assert refused.error_code == Error.KAFKA_STORAGE_ERROR
        assert set_aside(cluster, leader, "t") == []
        assert (cluster.data_dir(leader) / "t-0").exists()


def test_a_replica_that_is_found_damaged_at_the_start_is_filled_again(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster, partitions=1) as play:
        play.go_on()
        follower = next(b for b in cluster.brokers if b != cluster.leader_of(TOPIC))
        cluster.stop(follower)
        path = cluster.data_dir(follower) / f"{TOPIC}-0" / "00000000000000000000.log"
        path.write_bytes(bytes(path.stat().st_size))
        cluster.start(follower)
        cluster.wait_until_in_sync(TOPIC)
        assert len(set_aside(cluster, follower, TOPIC)) == 1
