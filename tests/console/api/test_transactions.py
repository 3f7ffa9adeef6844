"""Transactions through the console's API."""

from __future__ import annotations

import confluent_kafka
import pytest

from moldau.testing import Broker
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
