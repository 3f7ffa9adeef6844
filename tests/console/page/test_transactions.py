"""Transactions in the browser."""

from __future__ import annotations

import confluent_kafka
import pytest

from moldau.testing import Broker
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened

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
