"""Topics and messages in the browser."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from moldau.testing import Broker
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened
from tests.console.page.filling import fill

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.slow


def _rows(page: Page, count: int) -> None:
    from playwright.sync_api import expect

    shown = re.compile(rf"^{count:,} messages?\b")
    expect(page.get_by_role("region", name="Messages").get_by_role("status")).to_have_text(shown)


def _listed(page: Page) -> Locator:
    """Return the rows of the list of messages; fields for a choice have options, too."""
    return page.get_by_role("listbox", name="Messages of").get_by_role("option")


def test_a_topic_is_created_filled_browsed_and_deleted(
    opened: Opened, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    page = opened(own_console.url)
    page.get_by_role("link", name="Topics", exact=True).click()
    page.get_by_role("button", name="New topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("rivers")
    dialog.get_by_label("Partitions").fill("3")
    dialog.get_by_label("Kept for hours").fill("2")
    dialog.get_by_role("button", name="Create topic").click()

    expect(page.get_by_role("heading", name="rivers")).to_be_visible()
    for key, value in (
        ("cz", '{"name": "Vltava", "km": 430}'),
        ("at", '{"name": "Inn", "km": 517}'),
    ):
        page.get_by_role("button", name="Produce", exact=True).click()
        dialog.get_by_label("Key", exact=True).fill(key)
        dialog.get_by_label("Value", exact=True).fill(value)
        dialog.get_by_role("button", name="Produce").click()
        expect(dialog).to_have_count(0)
    _rows(page, 2)

    # The key leads to one of them, and the address keeps both the key and the message.
    page.get_by_label("Key", exact=True).fill("cz")
    page.get_by_role("button", name="Apply").click()
    _rows(page, 1)
    _listed(page).first.click()
    detail = page.get_by_role("complementary", name=re.compile("^Message"))
    expect(detail).to_contain_text("Vltava")
    again = opened(page.url)
    _rows(again, 1)
    expect(again.get_by_role("complementary", name=re.compile("^Message"))).to_contain_text("430")

    # Sent again, it is there twice.
    detail.get_by_role("button", name="Send again").click()
    dialog.get_by_role("button", name="Send again").click()
    expect(dialog).to_have_count(0)
    _rows(page, 2)

    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Search settings").fill("retention.ms")
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    page.get_by_role("textbox", name="retention.ms", exact=True).fill("60000")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Settings").get_by_text("1 min").first).to_be_visible()
    configs = own_console.get("api/topics/rivers")["configs"]
    assert {"60000"} == {each["value"] for each in configs if each["name"] == "retention.ms"}

    page.get_by_role("button", name="Delete", exact=True).click()
    assert dialog.get_by_role("button", name="Delete topic").is_disabled()
    dialog.get_by_role("textbox").fill("rivers")
    dialog.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_text("There are no topics yet")).to_be_visible()


def test_messages_are_followed_live_and_held_while_paused(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    fill(own_broker, "live", [("a", "before")])
    page = opened(f"{own_console.url}/#/topics/live?mode=live")
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    page.wait_for_function(
        "performance.getEntriesByName(location.origin + '/api/topics/live/tail')"
    )
    # A stream that has just begun may miss what was written before it.
    written = 0
    while _listed(page).count() == 0:
        written += 1
        assert written < 40
        fill(own_broker, "live", [("a", f"number {written}")])
        page.wait_for_timeout(500)
    expect(_listed(page).first).to_contain_text("number")

    page.get_by_role("button", name="Pause").click()
    before = _listed(page).count()
    fill(own_broker, "live", [("b", "held back")])
    expect(page.get_by_role("button", name="Go on (")).to_be_visible()
    assert _listed(page).count() == before
    page.get_by_role("button", name="Go on").click()
    expect(_listed(page).last).to_contain_text("held back")


def test_a_filter_shows_what_matches_and_says_what_is_wrong_with_it(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    pytest.importorskip("duckdb")
    from playwright.sync_api import expect

    messages = [
        (f"k{i}", json.dumps({"amount": i, "country": "cz" if i % 2 else "at"})) for i in range(50)
    ]
    fill(own_broker, "orders", messages)
    page = opened(f"{own_console.url}/#/topics/orders")
    _rows(page, 50)
    page.get_by_label("Filter").fill("value.amount >= 40 AND value.country = 'cz'")
    page.get_by_role("button", name="Apply").click()
    _rows(page, 5)
    _rows(opened(page.url), 5)

    page.get_by_label("Filter").fill("value.amount >=")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert")).not_to_be_empty()


def test_a_search_tells_its_progress_and_is_exported(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    pytest.importorskip("duckdb")
    fill(own_broker, "orders", [(f"k{i}", json.dumps({"amount": i})) for i in range(20_000)])
    page = opened(f"{own_console.url}/#/topics/orders")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_label("Filter").fill("value.amount % 1000 = 7")
    page.get_by_role("button", name="Search", exact=True).last.click()
    _rows(page, 20)
    with page.expect_download() as saved:
        page.get_by_role("link", name="JSON").click()
    assert "19007" in saved.value.path().read_text("utf-8")


def test_only_rows_on_show_exist_among_5_000_topics_and_100_000_messages(
    opened: Opened, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    topics = [
        {"name": f"load.area-{i % 50:02}.topic-{i:04}", "internal": False, "partitions": 3,
         "replication": 1, "messages": i, "bytes": i * 100, "under_replicated": 0, "rate_msgs": 0.0}
        for i in range(5000)
    ]  # fmt: skip
    page = opened(own_console.url)
    page.route("**/api/topics", lambda route: route.fulfill(json={"topics": topics}))
    page.goto(f"{own_console.url}/#/topics")
    listed = page.get_by_role("listbox", name="Topics")
    expect(listed.get_by_role("option").first).to_contain_text("topic-")
    assert listed.get_by_role("option").count() < 100
    listed.focus()
    page.keyboard.press("End")
    expect(listed.get_by_role("option", selected=True)).to_contain_text("area-49.topic-4999")
    assert listed.get_by_role("option").count() < 100
    page.keyboard.press("/")
    page.keyboard.type("topic-0042")
    expect(listed.get_by_role("option")).to_have_count(1)
    assert "q=topic-0042" in page.url

    sent = page.evaluate(_FLOOD)
    assert sent == 100_000
    listed = page.get_by_role("listbox", name="Messages of flood")
    expect(listed.get_by_role("option").last).to_contain_text("99999")
    assert listed.get_by_role("option").count() < 100


# A stream of 100,000 messages in place of the console's.
_FLOOD = """() => {
  const Real = window.EventSource;
  window.EventSource = class extends Real {
    constructor(url) {
      super(url.includes("/tail") ? "api/events" : url);
      if (!url.includes("/tail")) return;
      setTimeout(() => {
        for (let at = 0; at < 100000; at += 1000) {
          const messages = Array.from({ length: 1000 }, (_, i) => ({
            partition: 0, offset: at + i, timestamp: at + i, timestamp_type: "create",
            key: null, value: { encoding: "text", bytes: 5, text: "x" }, headers: [], size: 5,
          }));
          this.dispatchEvent(new MessageEvent("messages", { data: JSON.stringify(messages) }));
        }
      });
    }
  };
  location.hash = "#/topics/flood?mode=live";
  return 100000;
}"""
