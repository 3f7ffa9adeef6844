"""Transactions through the console's API."""

from __future__ import annotations

import confluent_kafka
import pytest

from moldau.console.settings import ConsoleSettings, sign_in_properties
from moldau.testing import Broker
from tests.broker.api.transactions.producing import Producer
from tests.console.consoles import RunningConsole
from tests.console.test_access import admin_login


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


def test_who_may_write_to_an_id_is_told_so_and_may_abort_and_nobody_else() -> None:
    """Brokers ask for no other right, and that to alter the cluster does not help."""
    with Broker(secure=True) as broker:
        settings = ConsoleSettings(
            broker.bootstrap, sign_in=sign_in_properties(broker.client_settings)
        )
        producer = confluent_kafka.Producer(
            broker.librdkafka_settings | {"transactional.id": "ledger"}
        )
        with RunningConsole(settings) as console:
            console.post("api/session", admin_login(broker))
            console.post("api/topics", {"name": "within"}, 201)
            for name in ("ann", "ben"):
                user = {"name": name, "password": "a long password"}
                console.post("api/security/users", user, 201)
            of_id = {"resource": "TransactionalId", "name": "ledger"}
            for rule in (
                {"principal": "User:ann", "operation": "Write", **of_id},
                {"principal": "User:ben", "operation": "Describe", **of_id},
                {"principal": "User:ben", "operation": "Alter", "resource": "Cluster",
                 "name": "kafka-cluster"},
            ):  # fmt: skip
                console.post("api/security/acls", rule, 201)
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce("within", "x")
            producer.flush(30)
            for name, operations, status in (
                ("ben", ["Describe"], 403),
                ("ann", ["Describe", "Write"], 200),
            ):
                console.post("api/session", {"user": name, "password": "a long password"})
                found = console.get("api/transactions/ledger")
                assert found["state"] == "Ongoing"
                assert found["operations"] == operations
                console.post("api/transactions/ledger/abort", {}, status)
            # There is nothing left to abort.
            assert console.get("api/transactions/ledger")["operations"] is None
