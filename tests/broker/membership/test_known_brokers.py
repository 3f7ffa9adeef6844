"""A broker that is out of the cluster says nothing about who leads; with real cuts in
tests/scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from moldau.cluster.state.changes import BrokerJoined
from moldau.cluster.state.topics import BrokerInfo
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.membership.test_departures import publish
from tests.broker.wire_client import Client, inside, make_batch

QUESTIONS = [
    (Api.METADATA, 12, {"topics": None}),
    (Api.METADATA, 12, {"topics": [{"name": "t"}]}),
    (Api.FIND_COORDINATOR, 1, {"key": "group", "key_type": 0}),
]


@contextmanager
def out_of_the_cluster(broker: Broker) -> Iterator[None]:
    inside(broker, lambda server: server.membership._fence(True))
    yield
    inside(broker, lambda server: server.membership._fence(False))


@pytest.mark.parametrize(("api", "version", "body"), QUESTIONS)
def test_clients_of_a_broker_out_of_the_cluster_go_on_to_another(
    moldau_broker: Broker, api: Api, version: int, body: dict[str, object]
) -> None:
    with Client(moldau_broker) as client:
        client.create("t")
        # It is in the cache of answers, too.
        client.ask(api, version, **body)
    publish(moldau_broker, BrokerJoined(BrokerInfo(7, "elsewhere", 9092)))
    with out_of_the_cluster(moldau_broker), Client(moldau_broker) as client:
        # It is there, and says no to writes; librdkafka would ask it again who leads.
        produced = client.produce("t", make_batch(b"x"), acks=1)
        assert produced.error_code == Error.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(ConnectionError):
            client.ask(api, version, **body)
    with Client(moldau_broker) as client:
        client.ask(api, version, **body)


@pytest.mark.parametrize(("api", "version", "body"), QUESTIONS)
def test_a_broker_that_knows_no_other_answers_what_it_knows(
    moldau_broker: Broker, api: Api, version: int, body: dict[str, object]
) -> None:
    with out_of_the_cluster(moldau_broker), Client(moldau_broker) as client:
        client.ask(api, version, **body)
