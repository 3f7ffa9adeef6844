"""Features: what a cluster can do is what its brokers can, and never less because none is known."""

from __future__ import annotations

from moldau.cluster.decisions.features import (
    GROUP_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    group_version,
    share_version,
    transaction_version,
)
from moldau.cluster.state.changes import BrokerJoined
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import BrokerInfo


def levels(state: ClusterState) -> tuple[int, int, int]:
    return transaction_version(state), group_version(state), share_version(state)


def test_nothing_is_taken_back_while_no_broker_is_registered() -> None:
    assert levels(ClusterState()) == (TRANSACTION_VERSION, GROUP_VERSION, SHARE_VERSION)


def test_one_broker_that_knows_less_decides_for_all() -> None:
    state = ClusterState()
    newer = BrokerInfo(
        1, "localhost", 9092, transaction_version=2, group_version=1, share_version=1
    )
    state.apply(BrokerJoined(newer))
    assert levels(state) == (2, 1, 1)
    state.apply(BrokerJoined(BrokerInfo(2, "localhost", 9093)))
    assert levels(state) == (0, 0, 0)
