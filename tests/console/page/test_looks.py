"""Every page in light and dark, on a phone, by keyboard, and by the rules of axe."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.testing import Broker
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened
from tests.console.page.filling import commit, fill

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
AXE = ROOT / "console/node_modules/axe-core/axe.min.js"
# Where people look at them; the best are in the docs.
SHOTS = Path(os.environ.get("MOLDAU_SCREENSHOTS", ROOT / ".cache/screenshots"))

PAGES = {
    "overview": "",
    "cluster": "cluster",
    "topics": "topics",
    "tree": "topics?view=tree&open=orders.",
    "messages": "topics/orders.eu?from=beginning&at=0/3",
    "live": "topics/orders.eu?mode=live",
    "search": "topics/orders.eu?mode=search&filter=value.amount%20%3E%2010",
    "partitions": "topics/orders.eu/partitions",
    "settings": "topics/orders.eu/settings",
    "consumers": "topics/orders.eu/consumers",
    "topic-schemas": "topics/orders.eu/schemas",
    "access": "topics/orders.eu/access",
    "groups": "groups",
    "group": "groups/billing",
    "transactions": "transactions",
    "schemas": "schemas",
    "pipelines": "pipelines",
    "dead-letters": "dead-letters",
    "users": "security/users",
    "rules": "security/acls",
    "quotas": "security/quotas",
    "audit": "security/audit",
}


@pytest.fixture
def filled(own_broker: Broker, own_console: RunningConsole) -> RunningConsole:
    orders = [
        (f"c{number}", json.dumps({"id": number, "amount": number * 3, "items": [{"sku": "a"}]}))
        for number in range(40)
    ]
    for topic in ("orders.eu", "orders.us", "users"):
        fill(own_broker, topic, orders, age_ms=3_600_000)
    commit(own_broker, "billing", "orders.eu", 12)
    return own_console


def _settled(page: Page) -> None:
    from playwright.sync_api import expect

    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("Loading")).to_have_count(0)


def _wrong(page: Page) -> list[str]:
    """Return what axe finds serious or worse."""
    page.add_script_tag(path=AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{page.url}: {each['id']}: {node['html'][:160]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(
    opened: Opened, filled: RunningConsole, scheme: str
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `make console`")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page = opened(filled.url, scheme=scheme)
    # The rules are not the page's own scripts, which is all that its policy lets in.
    cdp = page.context.new_cdp_session(page)
    cdp.send("Page.setBypassCSP", {"enabled": True})
    page.reload()
    wrong = []
    for name, place in PAGES.items():
        page.goto(f"{filled.url}/#/{place}")
        _settled(page)
        page.screenshot(path=SHOTS / f"{name}-{scheme}.png")
        wrong += _wrong(page)
    page.goto(f"{filled.url}/#/topics/orders.eu")
    page.get_by_role("button", name="Produce", exact=True).click()
    wrong += _wrong(page)
    assert wrong == []


def test_nothing_is_wider_than_a_phone(opened: Opened, filled: RunningConsole) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page = opened(filled.url, size=(390, 800))
    for name, place in PAGES.items():
        page.goto(f"{filled.url}/#/{place}")
        _settled(page)
        widths = page.evaluate(
            "['html', 'main'].map(name => document.querySelector(name).scrollWidth)"
        )
        assert max(widths) <= 390, place
        page.screenshot(path=SHOTS / f"{name}-phone.png")


def test_everything_is_reached_by_keyboard(opened: Opened, filled: RunningConsole) -> None:
    from playwright.sync_api import expect

    page = opened(filled.url)
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Overview")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(heading).to_have_text("Topics")
    expect(heading).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("eu")
    expect(page.get_by_role("listbox", name="Topics").get_by_role("option")).to_have_count(1)
    page.keyboard.press("Escape")
    page.get_by_role("listbox", name="Topics").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(heading).to_have_text("orders.eu")
    page.get_by_role("listbox", name="Messages of").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary", name=re.compile("^Message"))).to_be_visible()

    page.get_by_role("heading", level=1).focus()
    page.keyboard.press("s")
    page.keyboard.type("bill")
    expect(page.get_by_role("option", name="billing")).to_be_visible()
    page.keyboard.press("Enter")
    expect(heading).to_have_text("billing")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("D")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_what_one_may_not_do_is_not_offered(opened: Opened, own_broker: Broker) -> None:
    from playwright.sync_api import expect

    from moldau.console.settings import ConsoleSettings

    fill(own_broker, "orders", [("a", "1")])
    commit(own_broker, "billing", "orders", 0)
    settings = ConsoleSettings(own_broker.bootstrap, read_only=True)
    with RunningConsole(settings) as console:
        page = opened(f"{console.url}/#/topics")
        expect(page.get_by_text("Read-only")).to_be_visible()
        for place in ("topics", "topics/orders", "topics/orders/settings", "groups/billing"):
            page.goto(f"{console.url}/#/{place}")
            _settled(page)
            main = page.get_by_role("main")
            offered = main.get_by_role("button", name=re.compile("New|Produce|Delete|Change|Reset"))
            expect(offered).to_have_count(0)
