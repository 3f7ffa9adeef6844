"""Departures: who left a moment ago is still listed to clients that ask about topics."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.broker.membership import departures
from moldau.cluster.state.changes import AnyChange, BrokerJoined, BrokerLeft, PartitionsChanged
from moldau.cluster.state.topics import BrokerInfo, PartitionState
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, inside

OTHER = BrokerInfo(7, "elsewhere", 9092)


def publish(broker: Broker, *changes: AnyChange) -> None:
    inside(broker, lambda server: server.store._publish(changes))  # type: ignore[attr-defined]


def listed(client: Client, topics: list[str] | None) -> dict[int, Any]:
    named = None if topics is None else [{"name": name} for name in topics]
    return {each.node_id: each for each in client.ask(Api.METADATA, topics=named).brokers}


@pytest.fixture
def topic(client: Client, moldau_broker: Broker) -> str:
    """A topic that broker 7 led, and this one took over."""
    name = client.create()
    publish(moldau_broker, BrokerJoined(OTHER))
    assert listed(client, [name]).keys() == listed(client, []).keys() == {0, 7}
    publish(moldau_broker, BrokerLeft(7))
    return name


@pytest.fixture
def client(moldau_broker: Broker) -> Any:
    with Client(moldau_broker) as client:
        yield client


def test_answers_about_topics_list_who_left(client: Client, topic: str) -> None:
    found = listed(client, [topic])
    assert found.keys() == {0, 7}
    assert (found[7].host, found[7].port) == (OTHER.host, OTHER.port)


def test_answers_about_the_cluster_do_not(client: Client, topic: str) -> None:
    assert listed(client, []).keys() == {0}
    assert listed(client, None).keys() == {0}
    assert [each.broker_id for each in client.ask(Api.DESCRIBE_CLUSTER).brokers] == [0]


def test_nothing_is_led_by_who_left(client: Client, topic: str, moldau_broker: Broker) -> None:
    state = PartitionState((7, 0), (7,), leader=7, leader_epoch=3)
    publish(moldau_broker, PartitionsChanged(topic, {0: state}))
    answer = client.ask(Api.METADATA, topics=[{"name": topic}])
    [partition] = answer.topics[0].partitions
    assert (partition.leader_id, partition.error_code) == (-1, Error.LEADER_NOT_AVAILABLE)
    assert partition.offline_replicas == (7,)


def test_who_comes_back_is_listed_where_it_is_now(
    client: Client, topic: str, moldau_broker: Broker
) -> None:
    publish(moldau_broker, BrokerJoined(BrokerInfo(7, "another", 9093)))
    assert listed(client, [topic])[7].host == "another"
    assert listed(client, [])[7].host == "another"
    assert inside(moldau_broker, lambda server: server.departures.brokers) == {}


def test_after_a_while_nobody_hears_of_it_any_more(
    client: Client, moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "LISTED_S", 3600.0)
    name = client.create()
    publish(moldau_broker, BrokerJoined(OTHER))
    publish(moldau_broker, BrokerLeft(7))
    # Encoded answers are kept as long as the state stays as it is.
    assert listed(client, [name]).keys() == {0, 7}
    inside(moldau_broker, lambda server: server.departures._forget(7))
    assert listed(client, [name]).keys() == {0}
