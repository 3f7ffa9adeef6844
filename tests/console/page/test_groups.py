"""Groups in the browser, and what is wrong on the first page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.client.queue.queue import Queue
from moldau.testing import Broker
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened
from tests.console.page.filling import commit, fill

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


def test_a_group_is_reset_after_a_preview(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    fill(own_broker, "orders", [("a", str(number)) for number in range(30)])
    commit(own_broker, "billing", "orders", 25)
    page = opened(own_console.url)
    page.get_by_role("link", name="Groups", exact=True).click()
    page.get_by_role("option", name="billing").click()
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox", name="To", exact=True).select_option("So many on or back")
    dialog.get_by_role("spinbutton", name="By").fill("-20")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("region", name="Preview")).to_contain_text("20 read again")
    assert own_console.get("api/groups/billing")["lag"] == 5

    # Another choice needs another preview.
    dialog.get_by_role("spinbutton", name="By").fill("-10")
    expect(dialog.get_by_role("button", name="Reset", exact=True)).to_have_count(0)
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("button", name="Reset", exact=True).click()
    expect(dialog).to_have_count(0)
    assert own_console.get("api/groups/billing")["lag"] == 15


def test_a_reset_of_a_group_with_members_is_refused_in_words(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    fill(own_broker, "orders", [("a", "1")])
    consumer = Consumer(
        {
            "bootstrap.servers": own_broker.bootstrap,
            "group.id": "busy",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    try:
        assert consumer.consume(1, 20)
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        page = opened(f"{own_console.url}/#/groups/busy")
        page.get_by_role("button", name="Reset offsets").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("stop its consumers first")
        dialog.get_by_role("button", name="Preview").click()
        dialog.get_by_role("button", name="Reset", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text("busy has members")
    finally:
        consumer.close()


def _clicks(page: Page) -> int:
    return int(page.evaluate("window.clicks ?? 0"))


def test_which_group_is_behind_and_since_when_takes_at_most_two_clicks(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    hour_ago_ms = 3_600_000
    fill(own_broker, "orders", [("a", str(number)) for number in range(9)], age_ms=hour_ago_ms)
    commit(own_broker, "on-time", "orders", 9)
    commit(own_broker, "late", "orders", 2)
    page = opened(own_console.url)
    page.evaluate("window.clicks = 0; addEventListener('click', () => window.clicks += 1, true)")

    page.get_by_role("link", name="group late").click()

    behind = page.get_by_role("main")
    expect(behind.get_by_role("heading", name="late", exact=True)).to_be_visible()
    expect(behind).to_contain_text("7")
    expect(behind).to_contain_text("1 h")
    expect(behind).to_contain_text("late since")
    assert _clicks(page) <= 2


def test_a_share_group_shows_what_is_in_flight_and_is_reset_when_nobody_is_in_it(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    hour_ago_ms = 3_600_000
    fill(own_broker, "jobs", [(None, str(number)) for number in range(20)], age_ms=hour_ago_ms)
    with Queue(
        "jobs", group="workers", start="earliest", ahead=5, bootstrap=own_broker.bootstrap
    ) as queue:
        for number, job in enumerate(queue):
            if number == 7:
                break
            job.done()
        queue.flush()
        page = opened(f"{own_console.url}/#/groups/workers")
        main = page.get_by_role("main")
        row = main.get_by_role("row", name="jobs 0")
        expect(row).to_be_visible()
        shown = dict(
            zip(
                main.get_by_role("columnheader").all_inner_texts(),
                row.get_by_role("cell").all_inner_texts(),
                strict=True,
            )
        )
        assert int(shown["In flight"]) >= 1
        assert (shown["Start"], shown["End"], shown["Dead"]) == ("7", "20", "0")
        assert shown["In time"] == "1 h"
        page.get_by_role("button", name="Reset offsets").click()
        expect(page.get_by_role("dialog")).to_contain_text("stop its consumers first")
        page.keyboard.press("Escape")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("delivered again, even what members have finished")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("region", name="Preview")).to_contain_text("read again")
    dialog.get_by_role("button", name="Reset", exact=True).click()
    expect(dialog).to_have_count(0)
    (partition,) = own_console.get("api/groups/workers")["share"]["partitions"]
    assert (partition["start"], partition["lag"]) == (0, 20)
