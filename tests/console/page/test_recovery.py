"""A page that stays open while the broker, or the console itself, goes away."""

from __future__ import annotations

import re

import pytest

from moldau.testing import Broker
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened
from tests.console.page.filling import fill

pytestmark = pytest.mark.slow


def test_a_page_comes_back_by_itself_after_its_broker_was_away(
    opened: Opened, own_broker: Broker, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    fill(own_broker, "before", [("a", "1")])
    page = opened(f"{own_console.url}/#/topics")
    rows = page.get_by_role("listbox", name="Topics").get_by_role("option")
    expect(rows).to_have_count(1)

    own_broker.stop()
    page.get_by_role("link", name="Cluster", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    own_broker.start()
    fill(own_broker, "after", [("a", "1")])

    # Nobody clicks or reloads.
    expect(page.get_by_role("row", name=re.compile(own_broker.bootstrap))).to_be_visible(
        timeout=30_000
    )
    page.get_by_role("link", name="Topics", exact=True).click()
    expect(rows).to_have_count(2, timeout=30_000)


def test_a_page_of_a_broker_comes_back_by_itself_after_a_restart(
    opened: Opened, own_broker: Broker
) -> None:
    from playwright.sync_api import expect

    fill(own_broker, "before", [("a", "1")])
    page = opened(f"{own_broker.http_url}/console/#/topics")
    rows = page.get_by_role("listbox", name="Topics").get_by_role("option")
    expect(rows).to_have_count(1)

    own_broker.stop()
    expect(page.get_by_text("The console does not answer")).to_be_visible(timeout=30_000)
    own_broker.start()
    fill(own_broker, "after", [("a", "1")])

    expect(rows).to_have_count(2, timeout=30_000)
    expect(page.get_by_text("The console does not answer")).to_have_count(0)
