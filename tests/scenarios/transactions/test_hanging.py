"""Hanging transactions, looked for on a cluster whose coordinators die."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from moldau.peer.cluster import Cluster as Asked
from moldau.peer.hanging import find_hanging
from moldau.peer.transactions import Transactions
from moldau.peer.view import parse_bootstrap
from moldau.testing import Cluster, Ensemble
from tests.scenarios.clients import IMPATIENT
from tests.scenarios.transactions.test_transactions import (
    WITHIN_S,
    committed,
    coordinated_elsewhere,
    coordinator_of,
    state_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_no_transaction_seems_to_hang_while_its_coordinator_moves(ensemble: Ensemble) -> None:
    """While nobody knows the transaction, nobody can say that it is not known."""
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=1)
        id = coordinated_elsewhere(cluster, cluster.leader_of("orders"))
        cluster.wait_until_in_sync("__transaction_state")
        producer = Producer(
            {**IMPATIENT, "bootstrap.servers": cluster.bootstrap, "transactional.id": id}
        )
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        producer.produce("orders", b"open")
        assert producer.flush(WITHIN_S) == 0
        with Asked(parse_bootstrap(cluster.bootstrap)) as asked:
            transactions = Transactions(asked)
            (open_here,) = transactions.open_in([("orders", 0)])
            cluster.kill(coordinator_of(cluster, id))
            # From the moment of its death until another has taken over, and after that.
            while state_of(cluster, id) != "Ongoing":
                assert find_hanging(transactions, [("orders", 0)]) == []
            assert find_hanging(transactions, [("orders", 0)]) == []
            assert transactions.describe(id).partitions == (("orders", 0),)
            (known,) = transactions.of_producers([open_here.producer_id])
            assert known.id == id
            transactions.fence(id)
            assert transactions.open_in([("orders", 0)]) == []
            assert transactions.describe(id).state == "Empty"
        assert committed(cluster, "orders") == []
