"""Replicas that come back with less than they had: who leads then, and what of it is lost.

A power failure is played by a kill after which what was not forced to disk is gone: the end of the
log, and the record of where the logs ended.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from moldau.peer.connection import Connection
from moldau.testing import Cluster, Ensemble
from moldau.wire.apis import Api
from tests.scenarios.clients import IMPATIENT, PATIENCE_S
from tests.scenarios.test_absence import read, send

pytestmark = pytest.mark.timeout(400)

TOPIC = "orders"
SENT = [b"%d" % number + b"." * 100 for number in range(50)]
MORE = [b"%d" % number + b"." * 100 for number in range(50, 60)]


class Pair:
    """Two brokers with one partition: `first` leads it, and is its preferred leader."""

    def __init__(self, cluster: Cluster, minimum: int) -> None:
        self.cluster = cluster
        cluster.create_topic(TOPIC, min_insync_replicas=minimum)
        cluster.wait_until_in_sync(TOPIC)
        self.first = cluster.leader_of(TOPIC)
        (self.second,) = set(cluster.brokers) - {self.first}
        assert cluster.view(self.first).partitions[TOPIC, 0].replicas[0] == self.first
        send(cluster, TOPIC, SENT)
        cluster.wait_until_in_sync(TOPIC)

    def folder(self, broker: int) -> Path:
        return self.cluster.data_dir(broker) / f"{TOPIC}-0"

    def write_alone(self) -> None:
        """Have the first broker write something that the second does not have."""
        self.cluster.stop(self.second)
        self.cluster.wait_until(
            lambda: self.cluster.view(self.first).partitions[TOPIC, 0].isr == (self.first,),
            "the first is in sync alone",
        )
        send(self.cluster, TOPIC, MORE)

    def lose_power(self, broker: int, *, half_of_the_log: bool = False) -> None:
        self.cluster.kill(broker)
        if half_of_the_log:
            (segment,) = self.folder(broker).glob("*.log")
            os.truncate(segment, segment.stat().st_size // 2)
        (self.cluster.data_dir(broker) / "log-ends").unlink()

    def described(self, by: int) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Leader, in-sync, eligible and last known eligible replicas, as a broker sees them."""
        host, _, port = self.cluster.address(by).rpartition(":")
        question = {"topics": [{"name": TOPIC}], "response_partition_limit": 10}
        with Connection(host, int(port), "test", timeout_s=5.0) as connection:
            answer = connection.ask(Api.DESCRIBE_TOPIC_PARTITIONS, question)
        (partition,) = answer.topics[0].partitions
        return (
            int(partition.leader_id),
            tuple(partition.isr_nodes),
            tuple(partition.eligible_leader_replicas or ()),
            tuple(partition.last_known_elr or ()),
        )

    def expect(
        self, by: int, leader: int, isr: tuple[int, ...], *eligible: tuple[int, ...]
    ) -> None:
        wanted = (leader, isr, *eligible)
        self.cluster.wait_until(
            lambda: self.described(by) == wanted, f"{wanted}, but {self.described(by)}", 20
        )

    def expect_all(self, values: list[bytes]) -> None:
        """Return when both brokers hold just these messages; whoever leads shows them."""
        self.cluster.wait_until_in_sync(TOPIC)
        assert [value for _, _, value in read(self.cluster, TOPIC)] == values
        for broker in self.cluster.brokers:
            assert "committed records are lost" not in self.cluster.log(broker).read_text()


@pytest.fixture
def cluster(ensemble: Ensemble) -> Iterator[Cluster]:
    # Leadership does not go back by itself, so that a test sees who was elected.
    with Cluster(2, ensemble, auto_leader_rebalance_enable=False) as cluster:
        yield cluster


@pytest.mark.parametrize("is_record_kept", [pytest.param(False, marks=pytest.mark.slow), True])
def test_who_was_stopped_cleanly_leads_and_not_the_last_in_sync_that_lost_power(
    cluster: Cluster, is_record_kept: bool
) -> None:
    pair = Pair(cluster, minimum=2)
    first, second = pair.first, pair.second
    cluster.stop(second)
    pair.expect(first, first, (first,), (second,), ())
    record = cluster.data_dir(first) / "log-ends"
    kept = record.read_bytes()
    pair.lose_power(first, half_of_the_log=True)
    if is_record_kept:
        record.write_bytes(kept)
    cluster.start(first)
    pair.expect(first, -1, (), (second,), () if is_record_kept else (first,))
    cluster.start(second)
    assert cluster.leader_of(TOPIC) == second
    pair.expect_all(SENT)


def test_when_all_have_lost_power_the_last_leader_leads_again(cluster: Cluster) -> None:
    pair = Pair(cluster, minimum=2)
    first, second = pair.first, pair.second
    pair.lose_power(second)
    pair.expect(first, first, (first,), (second,), ())
    pair.lose_power(first)
    cluster.start(second)
    pair.expect(second, -1, (first,), (), (first,))
    cluster.start(first)
    assert cluster.leader_of(TOPIC) == first
    pair.expect_all(SENT)


@pytest.mark.parametrize("who", ["first", pytest.param("second", marks=pytest.mark.slow)])
def test_whoever_was_only_killed_comes_back_alone(cluster: Cluster, who: str) -> None:
    pair = Pair(cluster, minimum=2)
    cluster.kill(*cluster.brokers)
    broker = getattr(pair, who)
    cluster.start(broker)
    assert cluster.leader_of(TOPIC) == broker
    cluster.start(*set(cluster.brokers) - {broker})
    pair.expect_all(SENT)


@pytest.mark.parametrize(
    ("stops", "has_backup"),
    [
        (True, True),
        *(pytest.param(False, each, marks=pytest.mark.slow) for each in (True, False)),
    ],
)
def test_the_last_in_sync_does_not_lead_without_what_it_had_until_that_is_put_back(
    cluster: Cluster, tmp_path: Path, stops: bool, has_backup: bool
) -> None:
    pair = Pair(cluster, minimum=1)
    first, second = pair.first, pair.second
    folder, away, backup = pair.folder(first), tmp_path / "away", tmp_path / "backup"
    shutil.copytree(folder, backup)
    pair.write_alone()
    if stops:
        cluster.stop(first)
    else:
        cluster.kill(first)
    shutil.move(folder, away)
    if has_backup:
        shutil.copytree(backup, folder)
    cluster.start(first)
    pair.expect(first, -1, (), (), ())
    cluster.start(second)
    cluster.wait_until(
        lambda: cluster.view(first).brokers == set(cluster.brokers), "both are registered"
    )
    pair.expect(second, -1, (), (), ())
    assert f"{TOPIC}-0 ended at 60" in cluster.log(first).read_text()
    # Another start changes nothing: neither does what it lacks become right.
    cluster.kill(first)
    cluster.start(first)
    pair.expect(second, -1, (), (), ())
    cluster.stop(first)
    shutil.rmtree(folder)
    shutil.move(away, folder)
    cluster.start(first)
    assert cluster.leader_of(TOPIC) == first
    pair.expect_all(SENT + MORE)


def test_an_unclean_election_takes_who_has_something(cluster: Cluster, tmp_path: Path) -> None:
    pair = Pair(cluster, minimum=1)
    pair.write_alone()
    cluster.stop(pair.first)
    shutil.move(pair.folder(pair.first), tmp_path)
    cluster.start(pair.first, pair.second)
    pair.expect(pair.first, -1, (), (), ())
    entry = ConfigEntry(
        "unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({**IMPATIENT, "bootstrap.servers": cluster.bootstrap})
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(PATIENCE_S)
    assert cluster.leader_of(TOPIC) == pair.second
    pair.expect_all(SENT)


def test_a_folder_moved_away_is_copied_anew_from_who_is_in_sync(
    cluster: Cluster, tmp_path: Path
) -> None:
    pair = Pair(cluster, minimum=1)
    cluster.stop(pair.first)
    shutil.move(pair.folder(pair.first), tmp_path)
    cluster.start(pair.first)
    pair.expect_all(SENT)
    assert cluster.leader_of(TOPIC) == pair.second
    # Now it is worth as much as the other.
    cluster.stop(pair.second)
    assert [value for _, _, value in read(cluster, TOPIC)] == SENT


@pytest.mark.slow
def test_a_folder_moved_away_while_the_others_are_eligible_is_copied_from_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    pair = Pair(cluster, minimum=2)
    cluster.stop(pair.second)
    cluster.stop(pair.first)
    shutil.move(pair.folder(pair.first), tmp_path)
    cluster.start(pair.first)
    pair.expect(pair.first, -1, (), (pair.second,), ())
    cluster.start(pair.second)
    assert cluster.leader_of(TOPIC) == pair.second
    pair.expect_all(SENT)
