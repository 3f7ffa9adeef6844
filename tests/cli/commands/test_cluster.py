"""`moldau cluster` against a broker alone, and its views as values; more in tests/scenarios."""

from __future__ import annotations

from moldau.cli.reassignments import Ongoing
from moldau.cli.views.cluster import (
    BrokerView,
    ClusterView,
    PartitionView,
    cluster_as_json,
    summary,
)
from tests.cli.conftest import Run


def test_a_broker_alone_is_a_cluster_of_one(moldau: Run, topic: str) -> None:
    described = moldau("cluster", "describe")
    assert described.status == 0, described.err
    assert described.out.startswith("cluster ")
    assert "1 broker," in described.out
    assert "BROKER  ADDRESS" in described.out
    assert topic not in described.out
    assert topic in moldau("cluster", "describe", "--all").out

    found = moldau("cluster", "describe", "--json").json
    assert found["controller"] == 0
    assert found["under_replicated"] == found["offline"] == found["moving"] == []
    (broker,) = found["brokers"]
    assert broker["id"] == 0
    assert broker["leads"] == broker["replicas"] == broker["in_sync"] == len(found["partitions"])


def test_a_broker_alone_has_nothing_to_move(moldau: Run, topic: str) -> None:
    ended = moldau("cluster", "rebalance")
    assert (ended.status, ended.out) == (0, "nothing to move: the load is already balanced\n")
    assert moldau("cluster", "rebalance", "--json").json == {"moves": [], "done": True}


def test_the_last_broker_cannot_be_emptied(moldau: Run, topic: str) -> None:
    ended = moldau("cluster", "rebalance", "--remove", "0")
    assert ended.status == 1
    assert "no broker would be left" in ended.err
    unknown = moldau("cluster", "rebalance", "--remove", "17")
    assert unknown.status == 1
    assert "there is no broker 17" in unknown.err


def view(*partitions: PartitionView, moving: dict[tuple[str, int], Ongoing]) -> ClusterView:
    brokers = tuple(BrokerView(i, f"127.0.0.1:{9092 + i}", None) for i in range(2))
    return ClusterView("id", 1, brokers, partitions, moving)


def test_what_is_missing_is_counted() -> None:
    seen = view(
        PartitionView(("a", 0), 0, (0, 1), (0, 1)),
        PartitionView(("a", 1), 0, (0, 2), (0,)),
        PartitionView(("a", 2), -1, (2,), (2,)),
        PartitionView(("b", 0), 0, (0, 1), (0,)),
        moving={("b", 0): Ongoing((0, 1), (1,), ())},
    )
    assert summary(seen) == (
        "cluster id: 2 brokers, 2 topics, 4 partitions, 1 offline, 1 under-replicated, 1 moving"
    )
    found = cluster_as_json(seen)
    assert found["under_replicated"] == ["a-1"]
    assert found["offline"] == ["a-2"]
    assert found["moving"] == [{"topic": "b", "partition": 0, "adding": [1], "removing": []}]
    assert [each["leads"] for each in found["brokers"]] == [3, 0]
