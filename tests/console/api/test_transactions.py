"""Transactions through the console's API."""

from __future__ import annotations

import confluent_kafka
import pytest

from moldau.testing import Broker
from tests.broker.api.transactions.producing import Producer
from tests.console.consoles import RunningConsole


def test_an_open_transaction_is_shown_and_aborted(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("within")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": shared_broker.bootstrap, "transactional.id": "open/one"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("within", "x")
    producer.flush(30)
    rows = {each["id"]: each for each in console.get("api/transactions")["transactions"]}
    assert rows["open/one"]["state"] == "Ongoing"
    assert rows["open/one"]["open_s"] >= 0
    found = console.get("api/transactions/open%2Fone")
    assert found["partitions"] == [["within", 0]]
    console.post("api/transactions/open%2Fone/abort")
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(30)
    refused = console.post("api/transactions/open%2Fone/abort", {}, 409)
    assert refused["error"]["code"] == "not_open"
    console.get("api/transactions/never", 404)


def test_a_transaction_of_the_sink_is_not_aborted(
    console: RunningConsole, shared_broker: Broker
) -> None:
    """It may be decided, while the driver that would commit it is down."""
    shared_broker.create_topic("decided")
    producer = Producer(shared_broker, id="moldau-sink/query/decided/run/1").init()
    producer.produce("decided", b"x")
    refused = console.post(
        "api/transactions/moldau-sink%2Fquery%2Fdecided%2Frun%2F1/abort", {}, 409
    )
    assert refused["error"]["code"] == "of_sink"
    assert producer.state() == "Ongoing"
    producer.end(commits=False)
    producer.client.close()
