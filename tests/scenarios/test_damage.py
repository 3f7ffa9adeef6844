"""A replica whose disk has failed gives up its place by itself, and is filled again by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.testing import Cluster, Ensemble
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, make_batch
from tests.scenarios.failing_disk import FailingDisks, damage, set_aside
from tests.scenarios.play import TOPIC, Play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

# Nobody leaves the in-sync replicas because it is slow.
PATIENT = {"replica.lag.time.max.ms": 60_000}


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingDisks:
    return FailingDisks(tmp_path, monkeypatch)


def connect(cluster: Cluster, broker: int) -> Client:
    host, _, port = cluster.address(broker).rpartition(":")
    return Client((host, int(port)))


def meet_damage(client: Client, topic: str, end: int) -> None:
    """Read from each offset until one is behind the damage, and not remembered from before."""
    assert any(
        client.fetch(topic, offset).error_code == Error.KAFKA_STORAGE_ERROR for offset in range(end)
    )


def test_a_leader_with_damaged_data_hands_over_and_copies_it_anew(ensemble: Ensemble) -> None:
    with (
        Cluster(3, ensemble, PATIENT) as cluster,
        Play(cluster, partitions=1, index_interval_bytes=1_000_000) as play,
    ):
        play.go_on(50)
        leader = cluster.leader_of(TOPIC)
        damage(cluster, leader, TOPIC, batch=3)
        with connect(cluster, leader) as client:
            meet_damage(client, TOPIC, play.ledger.end_of_acknowledged(play.places[0]))
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) != leader, "another leads")
        play.go_on()
        # All three again, and at the end of the play their copies are the same.
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()
        assert len(set_aside(cluster, leader, TOPIC)) == 1
        log = cluster.log(leader).read_text()
        assert "is to lead it, and it is copied anew from there" in log
        assert "the damaged files are kept in" in log


def test_a_leader_whose_fsync_fails_hands_over_and_trusts_nothing_that_it_has(
    ensemble: Ensemble, disks: FailingDisks
) -> None:
    with (
        Cluster(3, ensemble, PATIENT) as cluster,
        Play(cluster, partitions=1, flush_messages=1) as play,
    ):
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        disks.fail(cluster, leader)
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) != leader, "another leads")
        play.go_on()
        # Its new copy fails as well, again and again, and holds up nobody.
        cluster.wait_until(
            lambda: cluster.log(leader).read_text().count("copying all of it anew") > 1, "twice"
        )
        assert len(set_aside(cluster, leader, TOPIC)) <= 2
        disks.mend(cluster, leader)
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()


def test_two_of_three_disks_fail_at_once(ensemble: Ensemble, disks: FailingDisks) -> None:
    with (
        Cluster(3, ensemble, PATIENT) as cluster,
        Play(cluster, partitions=1, flush_messages=1) as play,
    ):
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        # The one that comes next in the order of replicas, so that it is chosen to lead.
        replicas = cluster.view(leader).partitions[TOPIC, 0].replicas
        second = replicas[1] if replicas[0] == leader else replicas[0]
        disks.fail(cluster, leader)
        disks.fail(cluster, second)
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) not in (leader, second), "the third")
        disks.mend(cluster, leader)
        disks.mend(cluster, second)
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()


def test_a_follower_whose_fsync_fails_leaves_at_once_and_is_filled_again(
    ensemble: Ensemble, disks: FailingDisks
) -> None:
    with (
        Cluster(3, ensemble, PATIENT) as cluster,
        Play(cluster, partitions=1, flush_messages=1) as play,
    ):
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        follower = next(broker for broker in cluster.brokers if broker != leader)
        disks.fail(cluster, follower)
        cluster.wait_until(
            lambda: follower not in cluster.view(leader).partitions[TOPIC, 0].isr, "it is out"
        )
        play.go_on()
        disks.mend(cluster, follower)
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
            damage(cluster, leader, "t", batch=3)
            meet_damage(client, "t", 40)
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
