"""Clusters whose brokers have several listeners, or not all the same ones."""

from __future__ import annotations

import asyncio
from typing import Any

from moldau.broker.net.listener import Listener
from moldau.peer.aio import AsyncConnection
from moldau.testing.waiting import until_async
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.replication.brokers import Brokers
from tests.broker.replication.conftest import Tell
from tests.broker.wire_client import Client, make_batch, produce_values

TWO = {
    "listeners": "OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener_security_protocol_map": ("OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
    "inter_broker_listener_name": "INSIDE",
}


def ports(cluster: Brokers, listener: str, *numbers: int) -> dict[int, int]:
    return {number: cluster[number].listener(listener).port for number in numbers}


async def ask(cluster: Brokers, number: int, listener: str, api: Api, **values: Any) -> Any:
    reached = cluster[number].listener(listener)
    connection = await AsyncConnection.connect(reached.host, reached.port, "test")
    try:
        return await connection.ask(api, values)
    finally:
        connection.close()


async def metadata(cluster: Brokers, number: int, listener: str, *topics: str) -> Any:
    wanted = [{"name": name} for name in topics]
    return await ask(cluster, number, listener, Api.METADATA, topics=wanted)


def write_to_wrong_leader(listener: Listener) -> Any:
    with Client((listener.host, listener.port)) as client:
        return client.ask(Api.PRODUCE, 10, **produce_values({"t": {0: make_batch(b"x")}}))


def test_clients_are_told_their_listener_of_every_broker_and_brokers_use_their_own(
    tell: Tell,
) -> None:
    async def story(cluster: Brokers) -> None:
        for listener in ("OUTSIDE", "INSIDE"):
            answer = await metadata(cluster, 1, listener)
            told = {node.node_id: node.port for node in answer.brokers}
            assert told == ports(cluster, listener, 0, 1)
        # Followers come in by the listener for brokers.
        await cluster.create("t", (0, 1))
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1)
        for number in (0, 1):
            registered = cluster[1 - number].state.brokers[number]
            assert registered.port == ports(cluster, "INSIDE", number)[number]
        followers = [each for each in cluster[0].connections if each.client_id not in ("", "test")]
        assert {each.context.listener for each in followers} == {"INSIDE"}

    tell(story, 2, **TWO)


def test_a_leader_that_clients_of_a_listener_cannot_reach_is_not_named_to_them(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.stop(1)
        only_inside = {"listeners": "INSIDE://127.0.0.1:0"}
        await cluster.start(1, **only_inside)
        await until_async(lambda: len(cluster[0].state.brokers) == 2, "both are there")
        await cluster.create("t", (1, 0))
        await cluster.create("u", (0, 1))
        answer = await metadata(cluster, 0, "OUTSIDE", "t", "u")
        assert [node.node_id for node in answer.brokers] == [0]
        t, u = (topic.partitions[0] for topic in answer.topics)
        assert (t.error_code, t.leader_id, t.offline_replicas) == (
            Error.LISTENER_NOT_FOUND, -1, (1,),
        )  # fmt: skip
        assert (u.error_code, u.leader_id, u.offline_replicas) == (0, 0, (1,))
        answer = await metadata(cluster, 0, "INSIDE", "t")
        assert len(answer.brokers) == 2
        assert answer.topics[0].partitions[0].leader_id == 1
        answer = await ask(
            cluster, 0, "OUTSIDE", Api.DESCRIBE_TOPIC_PARTITIONS,
            topics=[{"name": "t"}], response_partition_limit=10, cursor=None,
        )  # fmt: skip
        partition = answer.topics[0].partitions[0]
        assert (partition.leader_id, partition.offline_replicas) == (-1, (1,))
        answer = await ask(cluster, 0, "OUTSIDE", Api.DESCRIBE_CLUSTER)
        assert [node.broker_id for node in answer.brokers] == [0]
        # Who is told of another leader (KIP-951) is told where to find it, if anywhere.
        for listener, known in (("OUTSIDE", {0}), ("INSIDE", {0, 1})):
            answer = await asyncio.to_thread(write_to_wrong_leader, cluster[0].listener(listener))
            assert answer.responses[0].partition_responses[0].current_leader.leader_id == 1
            assert {node.node_id for node in answer.node_endpoints} == known

    tell(story, 2, **TWO)
