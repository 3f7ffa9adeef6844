"""Dead letters in the browser: found, understood, put right and sent back, with few clicks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from moldau.testing import Broker
from tests.console.api.test_dead_letters import bury, letter, of_pipeline
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

LETTERS = "payments-dead-letters"
NOT_OF_BROKERS = ("moldau.origin.offset", "moldau.source")


@pytest.fixture
def broken(own_broker: Broker, own_console: RunningConsole) -> RunningConsole:
    """A pipeline has left two messages that it could not read."""
    own_broker.create_topic("payments")
    own_broker.create_topic(LETTERS)
    for offset, reason, value in ((4, "not JSON", '{"amount": 12'), (9, "amount is missing", "{}")):
        own_console.post(
            f"api/topics/{LETTERS}/messages", letter("payments", offset, reason, value), 201
        )
    return own_console


def _count_clicks(page: Page) -> None:
    page.evaluate("window.clicks = 0; addEventListener('click', () => window.clicks += 1, true)")


def _clicks(page: Page) -> int:
    return int(page.evaluate("window.clicks"))


def _written(console: RunningConsole) -> list[Any]:
    found = console.get("api/topics/payments/messages", from_="beginning")["messages"]
    return [each["value"].get("json", each["value"].get("text")) for each in found]


def test_which_message_broke_the_pipeline_and_why_takes_three_clicks_and_its_repair_six(
    opened: Opened, broken: RunningConsole
) -> None:
    from playwright.sync_api import expect

    page = opened(broken.url)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    _count_clicks(page)

    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name="not JSON").click()
    page.get_by_role("listbox", name="Dead letters").get_by_role("option", name="not JSON").click()
    pane = page.get_by_role("complementary", name="Message 0 of partition 0")
    expect(pane).to_contain_text("not JSON")
    expect(pane).to_contain_text("payments, partition 0, offset 4")
    expect(pane).to_contain_text('{"amount": 12')
    assert _clicks(page) <= 3

    pane.get_by_role("button", name="Edit").click()
    pane.get_by_label("Value to send back").fill('{"amount": 12}')
    pane.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(pane).to_contain_text("It was sent back already")
    assert _clicks(page) <= 6
    assert _written(broken) == [{"amount": 12}]


def test_marked_letters_go_back_together_and_only_once(
    opened: Opened, broken: RunningConsole
) -> None:
    from playwright.sync_api import expect

    page = opened(f"{broken.url}/#/dead-letters/{LETTERS}")
    listed = page.get_by_role("listbox", name="Dead letters")
    expect(listed.get_by_role("option")).to_have_count(2)
    listed.focus()
    for key in ("Home", "Space", "End", "Space"):
        page.keyboard.press(key)
    page.get_by_role("button", name="Redrive 2").click()
    # Somebody else is faster.
    broken.post(f"api/dead-letters/{LETTERS}/redrive", {"all": True})
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("2 had gone back before")).to_be_visible()
    assert len(_written(broken)) == 2


def test_all_letters_of_a_reason_go_back_once_they_were_counted_and_no_others(
    opened: Opened, broken: RunningConsole
) -> None:
    from playwright.sync_api import expect

    page = opened(f"{broken.url}/#/dead-letters/{LETTERS}?reason=not%20JSON")
    expect(page.get_by_role("listbox", name="Dead letters").get_by_role("option")).to_have_count(1)
    page.get_by_role("button", name="Redrive all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Redrive 1 letter?")
    expect(dialog).to_contain_text("not JSON")
    dialog.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("1 letter went back to payments")).to_be_visible()
    assert _written(broken) == ['{"amount": 12']


def test_letters_behind_the_newest_thousand_are_found_and_sent_back(
    opened: Opened, broken: RunningConsole, own_broker: Broker
) -> None:
    from playwright.sync_api import expect

    bury(own_broker, LETTERS, [of_pipeline("payments", n, "too late") for n in range(10, 1009)])
    page = opened(f"{broken.url}/#/dead-letters/{LETTERS}")
    listed = page.get_by_role("listbox", name="Dead letters")
    expect(listed.get_by_role("option", name="too late").first).to_be_visible()
    page.get_by_role("button", name="Older").click()
    expect(listed.get_by_role("option")).to_have_count(1)
    expect(page.get_by_role("button", name="Older")).to_have_count(0)
    listed.get_by_role("option", name="not JSON").click()
    pane = page.get_by_role("complementary", name="Message 0 of partition 0")
    pane.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(pane).to_contain_text("It was sent back already")
    assert _written(broken) == ['{"amount": 12']
    page.get_by_role("button", name="Newest").click()
    expect(listed.get_by_role("option", name="too late").first).to_be_visible()


def test_a_record_that_the_check_has_set_aside_is_a_dead_letter(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    own_broker.create_topic("aside")
    own_broker.create_topic("payments", moldau_schema_validation_quarantine="aside")
    # As brokers write it.
    written = letter("payments", 0, "no value of its schema", "{}")
    written["headers"] = [pair for pair in written["headers"] if pair[0] not in NOT_OF_BROKERS]
    own_console.post("api/topics/aside/messages", written, 201)
    page = opened(f"{own_console.url}/#/dead-letters")
    page.get_by_role("link", name="no value of its schema").click()
    listed = page.get_by_role("listbox", name="Dead letters")
    listed.get_by_role("option", name="no value of its schema").click()
    pane = page.get_by_role("complementary", name="Message 0 of partition 0")
    expect(pane).to_contain_text("The brokers did not let it into payments, partition 0")
    pane.get_by_role("button", name="Edit").click()
    pane.get_by_label("Value to send back").fill('{"amount": 12}')
    pane.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(pane).to_contain_text("It was sent back already")
    assert _written(own_console) == [{"amount": 12}]
