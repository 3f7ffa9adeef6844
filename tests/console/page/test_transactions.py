"""Transactions in the browser."""

from __future__ import annotations

import confluent_kafka
import pytest

from moldau.console.settings import ConsoleSettings, sign_in_properties
from moldau.testing import Broker
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened
from tests.console.test_access import admin_login

pytestmark = pytest.mark.slow


def test_a_transaction_that_was_left_open_is_found_and_aborted(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    own_broker.create_topic("ledger")
    producer = confluent_kafka.Producer(
        own_broker.librdkafka_settings | {"transactional.id": "bank/one"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("ledger", "x")
    assert producer.flush(30) == 0
    page = opened(own_console.url)
    page.get_by_role("link", name="Transactions", exact=True).click()
    page.get_by_label("Only open ones").check()
    page.get_by_role("link", name="bank/one").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("ledger 0")
    # The address leads somebody else to the same.
    again = opened(page.url)
    expect(again.get_by_role("dialog")).to_contain_text("ledger 0")

    dialog.get_by_role("button", name="Abort").click()
    expect(dialog).to_contain_text("never shown")
    dialog.get_by_role("button", name="Abort").click()
    expect(page.get_by_text("The transaction of bank/one is aborted")).to_be_visible()
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(30)


def test_abort_is_offered_to_who_may_write_to_the_id_and_to_nobody_else(
    opened: Opened,
) -> None:
    from playwright.sync_api import expect

    with Broker(secure=True) as broker:
        settings = ConsoleSettings(
            broker.bootstrap, sign_in=sign_in_properties(broker.client_settings)
        )
        broker.create_topic("ledger")
        producer = confluent_kafka.Producer(
            broker.librdkafka_settings | {"transactional.id": "bank"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("ledger", "x")
        assert producer.flush(30) == 0
        with RunningConsole(settings) as console:
            console.post("api/session", admin_login(broker))
            of_id = {"resource": "TransactionalId", "name": "bank"}
            rules = {
                "ann": [{"operation": "Write", **of_id}],
                "ben": [
                    {"operation": "Describe", **of_id},
                    {"operation": "Alter", "resource": "Cluster", "name": "kafka-cluster"},
                ],
            }
            for name, given in rules.items():
                user = {"name": name, "password": "a long password"}
                console.post("api/security/users", user, 201)
                for rule in given:
                    console.post("api/security/acls", rule | {"principal": f"User:{name}"}, 201)
            for name, offered in (("ann", 1), ("ben", 0)):
                page = opened(f"{console.url}/#/transactions/bank")
                page.get_by_label("User").fill(name)
                page.get_by_label("Password").fill("a long password")
                page.get_by_role("button", name="Sign in").click()
                dialog = page.get_by_role("dialog")
                expect(dialog).to_contain_text("Ongoing")
                expect(dialog.get_by_role("button", name="Abort")).to_have_count(offered)
        producer.abort_transaction(30)


def test_a_transaction_that_is_open_for_long_leads_from_the_overview_to_its_page(
    opened: Opened, own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playwright.sync_api import expect

    monkeypatch.setattr("moldau.peer.hanging.LONG_S", 0)
    own_broker.create_topic("ledger")
    producer = confluent_kafka.Producer(
        own_broker.librdkafka_settings | {"transactional.id": "bank/two"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("ledger", "x")
    assert producer.flush(30) == 0
    settings = ConsoleSettings(own_broker.bootstrap, sample_every_s=0.5)
    with RunningConsole(settings) as console:
        page = opened(console.url)
        page.get_by_role("link", name="the transaction of bank/two").click()
        expect(page.get_by_role("dialog")).to_contain_text("ledger 0")
    producer.abort_transaction(30)
