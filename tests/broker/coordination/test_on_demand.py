"""Coordinators on demand: when they are built, and that nothing is lost until then."""

from __future__ import annotations

from moldau.broker.server import Broker as Server
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.api.transactions.producing import TV2, Producer
from tests.broker.wire_client import Client, inside


def built(server: Server) -> tuple[bool, bool]:
    return server._transactions.built is not None, server._shares.built is not None


def test_a_broker_without_transactions_and_share_groups_builds_no_coordinators_of_them() -> None:
    with Broker() as broker, Client(broker) as client:
        topic = client.create()
        client.ask(Api.LIST_GROUPS)
        client.ask(Api.DELETE_TOPICS, 1, topic_names=[topic], timeout=1000)
        assert inside(broker, built) == (False, False)


def test_a_broker_that_leads_the_topic_of_transactions_has_them_before_anybody_asks() -> None:
    with Broker({"transaction.state.log.num.partitions": 1}) as broker:
        producer = Producer(broker, TV2).init()
        producer.client.close()
        broker.stop()
        broker.start()
        assert inside(broker, built) == (True, False)

        def ids(server: Server) -> list[str]:
            return [id for shard in server.transactions.shards for id in shard.by_id]

        until(lambda: inside(broker, ids) == [producer.id], "transactions to be read back")
