"""Brokers that come and go for good."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain

import pytest

from moldau.cli import main
from moldau.testing import Cluster, Ensemble
from moldau.testing.view import PartitionView
from tests.scenarios.play import TOPIC, Play

pytestmark = pytest.mark.timeout(400)


@pytest.mark.slow
def test_a_fourth_broker_takes_its_share_and_one_can_leave(
    ensemble: Ensemble, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(3, ensemble) as cluster, Play(cluster, partitions=8) as play:
        play.go_on()
        added = cluster.add()
        # Whichever of them is asked.
        cluster.wait_until(
            lambda: all(added in cluster.view(each).brokers for each in cluster.brokers),
            "all brokers know the new one",
        )
        assert rebalance(cluster) == 0
        held = Counter(chain.from_iterable(each.replicas for each in partitions_of(cluster, added)))
        assert held.keys() == set(cluster.brokers)
        assert max(held.values()) - min(held.values()) <= 1
        cluster.wait_until_in_sync(TOPIC)
        play.go_on()

        assert rebalance(cluster, "--remove", "0", "--throttle", "10000000") == 0
        cluster.wait_until(
            lambda: all(0 not in each.replicas for each in partitions_of(cluster, added)),
            "nothing is on broker 0",
        )
        cluster.stop(0)
        play.go_on()

        def is_known() -> bool:
            capsys.readouterr()
            assert main(["cluster", "describe", "--json", "--bootstrap", cluster.address(1)]) == 0
            described = json.loads(capsys.readouterr().out)
            brokers = [each["id"] for each in described["brokers"]]
            return (brokers, described["under_replicated"]) == ([1, 2, 3], [])

        # Broker 1 hears of it in its own time.
        cluster.wait_until(is_known, "the others are left, and in sync")


def rebalance(cluster: Cluster, *words: str) -> int:
    return main(["cluster", "rebalance", "--yes", "--bootstrap", cluster.bootstrap, *words])


def partitions_of(cluster: Cluster, seen_by: int) -> list[PartitionView]:
    return list(cluster.view(seen_by).partitions.values())
