"""Groups, as coordinators tell of them."""

from __future__ import annotations

from moldau.peer.cluster import Cluster
from moldau.peer.groups import Groups, History
from moldau.peer.view import parse_bootstrap
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.asking import Asker
from tests.broker.coordination.groups.asking import Groups as Joining


def history(broker: Broker, group: str) -> History:
    with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        return Groups(cluster).history(group)


def test_a_history_begins_anew_with_its_coordinator_and_says_so() -> None:
    with Broker() as broker:
        with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
            cluster.insist(lambda: cluster.coordinator("workers"))
        with Asker(broker) as asker:
            until(lambda: Joining(asker).stable("workers"), "a group", ignoring=AssertionError)
        before = history(broker, "workers")
        assert before.since_ms is not None
        assert before.since_ms <= before.rebalances[0].ended_ms
        broker.stop()
        broker.start()
        after = history(broker, "workers")
        assert after.rebalances == ()
        assert after.since_ms is not None
        assert after.since_ms > before.rebalances[-1].ended_ms
