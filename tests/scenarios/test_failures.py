"""Failures that may happen to a cluster at night, each as a short story.

In all of them an idempotent producer with acks=all writes without pause, a reader reads along, and
at the end everything that was acknowledged or read must be there, once and in order.
"""

from __future__ import annotations

import itertools

import pytest

from moldau.testing import Cluster, Ensemble
from tests.scenarios.play import TOPIC, Play

pytestmark = pytest.mark.timeout(400)


def test_the_leader_is_killed_under_load(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster) as play:
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        cluster.kill(leader)
        play.go_on()
        cluster.start(leader)
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()


@pytest.mark.slow
def test_one_after_another_is_killed_and_comes_back(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster, writers=2) as play:
        for broker in cluster.brokers:
            play.go_on()
            cluster.kill(broker)
            play.go_on()
            cluster.start(broker)
            cluster.wait_until_in_sync(TOPIC)


@pytest.mark.slow
def test_two_die_at_once_and_the_third_goes_on(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster, min_insync_replicas=1) as play:
        play.go_on()
        cluster.wait_until_in_sync(TOPIC)
        leader = cluster.leader_of(TOPIC)
        gone = [leader, next(broker for broker in cluster.brokers if broker != leader)]
        cluster.kill(*gone)
        play.go_on()
        cluster.start(*gone)
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()


def test_the_controller_is_killed(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster) as play:
        controller = cluster.controller()
        cluster.kill(controller)
        play.go_on()
        assert cluster.controller() != controller
        # Whoever it is now can do what controllers do.
        cluster.create_topic("later", partitions=4, replication_factor=2)
        cluster.start(controller)
        cluster.wait_until_in_sync()


@pytest.mark.slow
def test_the_leader_of_zookeeper_is_killed() -> None:
    with Cluster(3, ensemble=3) as cluster, Play(cluster) as play:
        play.go_on()
        gone = cluster.ensemble.leader()
        cluster.ensemble.kill(gone)
        play.go_on()
        cluster.create_topic("later", partitions=2)
        cluster.ensemble.start(gone)
        # And what a cluster without that server decided is known to all.
        cluster.kill(cluster.leader_of(TOPIC))
        play.go_on()


def test_a_frozen_leader_does_no_harm_when_it_wakes(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster) as play:
        cluster.create_topic("idle", partitions=3)
        play.go_on()
        frozen = cluster.leader_of(TOPIC)
        cluster.freeze(frozen)
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) != frozen, "another leads")
        play.go_on()
        cluster.thaw(frozen)
        play.go_on()
        # Partitions in which nothing happens are not forgotten.
        cluster.wait_until_in_sync()


@pytest.mark.slow
def test_a_broker_that_is_cut_off_does_no_harm_and_comes_back(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble, can_be_cut=True) as cluster, Play(cluster) as play:
        cluster.create_topic("idle", partitions=3)
        play.go_on()
        cut = cluster.leader_of(TOPIC)
        cluster.cut(cut)
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) != cut, "another leads")
        play.go_on()
        cluster.heal(cut)
        cluster.wait_until_in_sync()
        play.go_on()


@pytest.mark.slow
def test_clients_of_a_leader_that_lost_the_others_are_told_so(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble, can_be_cut=True) as cluster, Play(cluster) as play:
        play.go_on()
        cut = cluster.leader_of(TOPIC)
        # Its clients still reach it: it must neither acknowledge nor show what only it has.
        cluster.cut(cut, from_clients=False)
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) != cut, "another leads")
        play.go_on()
        cluster.heal(cut)
        cluster.wait_until_in_sync(TOPIC)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::3])
@pytest.mark.slow
def test_all_stop_and_start_in_any_order(ensemble: Ensemble, order: tuple[int, ...]) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster) as play:
        play.go_on()
        cluster.stop(*cluster.brokers)
        for broker in order:
            cluster.start(broker)
        play.go_on()
        cluster.wait_until_in_sync(TOPIC)


@pytest.mark.slow
def test_all_are_killed_at_once(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster) as play:
        play.go_on()
        cluster.kill(*cluster.brokers)
        cluster.start(*cluster.brokers)
        play.go_on()
        cluster.wait_until_in_sync(TOPIC)


@pytest.mark.slow
def test_a_rolling_restart_is_not_noticed(ensemble: Ensemble) -> None:
    with (
        Cluster(3, ensemble) as cluster,
        Play(cluster, group="readers") as play,
    ):
        for broker in cluster.brokers:
            play.go_on()
            cluster.stop(broker)
            cluster.start(broker)
            cluster.wait_until_in_sync()
        play.go_on()


def test_a_group_goes_on_when_its_coordinator_dies(ensemble: Ensemble) -> None:
    with (
        Cluster(3, ensemble, offsets_topic_num_partitions=1) as cluster,
        Play(cluster, group="readers") as play,
    ):
        play.go_on()
        cluster.kill(cluster.leader_of("__consumer_offsets"))
        play.go_on()


@pytest.mark.slow
def test_a_consumer_group_goes_on_when_its_coordinators_die(ensemble: Ensemble) -> None:
    with (
        Cluster(
            3,
            ensemble,
            offsets_topic_num_partitions=1,
            group_consumer_min_heartbeat_interval_ms=300,
            group_consumer_heartbeat_interval_ms=300,
            group_consumer_min_session_timeout_ms=10_000,
            group_consumer_session_timeout_ms=10_000,
        ) as cluster,
        Play(cluster, group="readers", protocol="consumer") as play,
    ):
        for _ in range(2):
            play.go_on()
            coordinator = cluster.leader_of("__consumer_offsets")
            cluster.kill(coordinator)
            play.go_on()
            cluster.start(coordinator)
            cluster.wait_until_in_sync("__consumer_offsets")
        play.go_on()


@pytest.mark.slow
def test_a_broker_with_an_empty_disk_is_filled_again(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster) as play:
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        cluster.kill(leader)
        cluster.wipe(leader)
        cluster.start(leader)
        play.go_on()
        cluster.wait_until_in_sync(TOPIC)
        # What it has now is worth as much as what the others have.
        others = [broker for broker in cluster.brokers if broker != leader]
        play.pause()
        cluster.wait_until_in_sync(TOPIC)
        cluster.stop(*others)
        cluster.wait_until(lambda: cluster.leader_of(TOPIC) == leader, "it leads alone")
        cluster.start(*others)
        play.resume()
        play.go_on()


def test_the_only_copy_is_not_replaced_by_an_empty_disk(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("single", replication_factor=1)
        cluster.wait_until_in_sync("single")
        holder = cluster.leader_of("single")
        cluster.kill(holder)
        cluster.wipe(holder)
        cluster.start(holder)
        others = [broker for broker in cluster.brokers if broker != holder]
        cluster.wait_until(
            lambda: all(
                view.brokers == set(cluster.brokers) and view.partitions["single", 0].leader == -1
                for view in map(cluster.view, others)
            ),
            "the partition stays offline",
        )


def test_nothing_is_acknowledged_by_too_few(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster, min_insync_replicas=2) as play:
        play.go_on()
        leader = cluster.leader_of(TOPIC)
        gone = [broker for broker in cluster.brokers if broker != leader]
        cluster.kill(*gone)
        play.expect_standstill()
        cluster.start(*gone)
        play.go_on()
        cluster.wait_until_in_sync(TOPIC)
