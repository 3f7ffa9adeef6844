"""Dead letters in the browser: found, understood, put right and sent back, with few clicks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from moldau.testing import Broker
from tests.console.api.test_dead_letters import letter
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

LETTERS = "payments-dead-letters"


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
