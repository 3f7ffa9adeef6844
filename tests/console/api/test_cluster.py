"""The cluster through the console's API, while a partition moves."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.console.settings import ConsoleSettings
from moldau.peer.cluster import Cluster as Asked
from moldau.peer.view import parse_bootstrap
from moldau.testing import Cluster, Ensemble
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.console.consoles import RunningConsole

pytestmark = pytest.mark.slow


def move(bootstrap: str, topic: str, replicas: list[int]) -> None:
    wanted = {"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}
    values = {"timeout": 10_000, "topics": [wanted]}
    with Asked(parse_bootstrap(bootstrap)) as asked:
        answer = asked.some_broker().ask(Api.ALTER_PARTITION_REASSIGNMENTS, values)
    assert not answer.error_code, answer
    assert not answer.responses[0].partitions[0].error_code, answer


def test_a_partition_that_moves_is_shown_until_it_has_moved(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("orders", "x")
        assert producer.flush(30) == 0
        old = cluster.leader_of("orders")
        new = next(each for each in cluster.brokers if each not in (old, cluster.controller()))
        with RunningConsole(ConsoleSettings(cluster.address(old), sample_every_s=0.5)) as console:

            def moving() -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = console.get("api/cluster")["reassignments"]
                return found

            assert moving() == []
            # Who is to have it copies nothing until it goes on.
            cluster.freeze(new)
            try:
                move(cluster.address(old), "orders", [new])
                (found,) = until(moving, "the move")
                assert found == {
                    "topic": "orders", "partition": 0, "replicas": [new, old],
                    "adding": [new], "removing": [old],
                }  # fmt: skip
            finally:
                cluster.thaw(new)
            until(lambda: not moving(), "the end of the move")
            (partition,) = console.get("api/topics/orders")["partitions"]
            assert (partition["leader"], partition["replicas"]) == (new, [new])
