"""Every page in light and dark, on a phone, by keyboard, and by the rules of axe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from moldau.console.settings import ConsoleSettings, sign_in_properties
from moldau.security.client import ClientSecurity
from moldau.testing import Broker
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened
from tests.console.page.filling import commit, everything, fill
from tests.console.page.looks import let_axe_in, photographed, settled, wrong

pytestmark = pytest.mark.slow

# Pages by the names of their pictures: the address, and what is on them once they are filled.
PAGES = {
    "overview": ("", "billing"),
    "cluster": ("cluster", "Controller"),
    "topics": ("topics", "orders.eu"),
    "tree": ("topics?view=tree&open=orders.", "clicks."),
    "messages": ("topics/orders.eu?from=beginning&at=0/3", "amount"),
    "live": ("topics/orders.eu?mode=live", "Waiting for messages"),
    "search": ("topics/orders.eu?mode=search&filter=value.amount%20%3E%20700", "Passau"),
    "partitions": ("topics/orders.eu/partitions", "in sync"),
    "settings": ("topics/orders.eu/settings", "retention.ms"),
    "consumers": ("topics/orders.eu/consumers", "billing"),
    "topic-schemas": ("topics/orders.eu/schemas", "orders.eu-value"),
    "access": ("topics/orders.eu/access", "User:ann"),
    "groups": ("groups", "workers"),
    "group": ("groups/billing", "orders.eu 0"),
    "group-with-member": ("groups/dashboards", "dashboard-1"),
    "share-group": ("groups/workers", "workers is 18 messages behind"),
    "transactions": ("transactions", "ledger-1"),
    "transaction": ("transactions/ledger-1", "payments 0"),
    "schemas": ("schemas", "people-value"),
    "schema": ("schemas/orders.eu-value?against=1", "city"),
    "pipelines": ("pipelines", "does not exist"),
    "pipeline": ("pipelines/shop", "GROUP BY city"),
    "lake": ("lake?path={lake}&pipeline=shop", "Plzeň"),
    "dead-letters": ("dead-letters", "not JSON"),
    "letters": ("dead-letters/payments-dead-letters?at=0/0", "Came from"),
    "users": ("security/users", "ann"),
    "rules": ("security/acls", "User:ben"),
    "who": ("security/who?topic=orders.eu", "User:ann"),
    "quotas": ("security/quotas", "user ann"),
    "audit": ("security/audit", "changed quotas"),
}
# Dialogs by the names of their pictures: the page, the button that opens each, what is in it, and
# the button that shows more of it, if there is one.
DIALOGS = {
    "new-topic": ("topics", "New topic", "Partitions", None),
    "produce": ("topics/orders.eu", "Produce", "Produce to orders.eu", None),
    "delete-topic": ("topics/orders.eu", "Delete", "Delete", None),
    "add-partitions": ("topics/orders.eu/partitions", "Add partitions", "Add partitions", None),
    "reset": ("groups/billing", "Reset offsets", "Reset offsets of billing", "Preview"),
    "reset-share": ("groups/workers", "Reset offsets", "members have finished", "Preview"),
    "delete-group": ("groups/billing", "Delete", "is forgotten", None),
    "abort": ("transactions/ledger-1", "Abort", "never shown", None),
    "register": ("schemas/orders.eu-value", "New version", "New version of orders.eu-value", None),
    "new-schema": ("schemas", "New schema", "New schema", None),
    "delete-schema": ("schemas/people-value", "Delete", "Delete", None),
    "redrive": ("dead-letters/payments-dead-letters?at=0/0", "Redrive", "Redrive 1 letter", None),
    "redrive-all": (
        "dead-letters/payments-dead-letters", "Redrive all", "Redrive all letters", None,
    ),
    "new-user": ("security/users", "New user", "Password", None),
    "delete-user": ("security/users", "Delete ben", "ben", None),
    "new-rule": ("security/acls", "New rule", "Principal", None),
    "new-quota": ("security/quotas", "New quota", "Value", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def filled(lake: Path) -> Iterator[RunningConsole]:
    """A locked broker with something on every page, and a console that acts as its admin."""
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[spark]'")
    with Broker(secure=True, http_listen="127.0.0.1:0") as broker:
        own = ClientSecurity.parse(broker.client_settings)
        settings = ConsoleSettings(
            broker.bootstrap, own, registry=broker.http_url, sample_every_s=0.5
        )
        with RunningConsole(settings) as console, everything(broker, console, lake):
            yield console


def address(console: RunningConsole, place: str, lake: Path) -> str:
    return f"{console.url}/#/{place.format(lake=quote(str(lake / 'orders')))}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(
    opened: Opened, filled: RunningConsole, lake: Path, scheme: str
) -> None:
    # Only colours are others in the dark.
    rules = ["color-contrast"] if scheme == "dark" else []
    page = opened(filled.url, scheme=scheme)
    let_axe_in(page)
    found = []
    for name, (place, text) in PAGES.items():
        page.goto(address(filled, place, lake))
        settled(page, text)
        photographed(page, f"{name}-{scheme}")
        found += wrong(page, *rules)
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_dialog(
    opened: Opened, filled: RunningConsole, lake: Path, scheme: str
) -> None:
    from playwright.sync_api import expect

    rules = ["color-contrast"] if scheme == "dark" else []
    page = opened(filled.url, scheme=scheme)
    let_axe_in(page)
    found = []
    for name, (place, button, text, more) in DIALOGS.items():
        page.goto(address(filled, place, lake))
        settled(page)
        opens = page.get_by_role("button", name=button, exact=True)
        opens.or_(page.get_by_role("link", name=button, exact=True)).first.click()
        dialog = page.get_by_role("dialog").last
        expect(dialog).to_contain_text(text)
        if more is not None:
            dialog.get_by_role("button", name=more).click()
            expect(dialog.get_by_role("region", name=more)).to_be_visible()
        photographed(page, f"dialog-{name}-{scheme}")
        found += wrong(page, *rules)
        page.keyboard.press("Escape")
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1360, 390])
def test_signing_in_looks_as_the_rest_does(opened: Opened, scheme: str, width: int) -> None:
    """Axe finds nothing, also once a password was wrong."""
    from playwright.sync_api import expect

    with Broker(secure=True) as broker:
        sign_in = sign_in_properties(broker.client_settings)
        with RunningConsole(ConsoleSettings(broker.bootstrap, sign_in=sign_in)) as console:
            page = opened(console.url, scheme=scheme, size=(width, 850))
            let_axe_in(page)
            settled(page, "Password")
            name = f"sign-in-{'phone-' if width < 720 else ''}{scheme}"
            photographed(page, name)
            found = wrong(page)
            page.get_by_label("User").fill("ann")
            page.get_by_label("Password").fill("not hers")
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("alert")).to_contain_text("wrong name or password")
            photographed(page, f"{name}-refused")
            found += wrong(page)
            shown = page.evaluate("document.documentElement.scrollWidth")
    assert found == []
    assert shown <= width


def test_nothing_is_wider_than_a_phone(opened: Opened, filled: RunningConsole, lake: Path) -> None:
    page = opened(filled.url, size=(390, 800))
    for name, (place, text) in PAGES.items():
        page.goto(address(filled, place, lake))
        settled(page, text)
        widths = page.evaluate(
            "['html', 'main'].map(name => document.querySelector(name).scrollWidth)"
        )
        assert max(widths) <= 390, place
        photographed(page, f"{name}-phone")


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
    page.get_by_role("listbox", name="Topics").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(heading).to_have_text("orders.eu")
    messages = page.get_by_role("listbox", name="Messages of")
    expect(messages.get_by_role("option").first).to_be_visible()
    messages.focus()
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

    fill(own_broker, "orders", [("a", "1")])
    commit(own_broker, "billing", "orders", 0)
    settings = ConsoleSettings(own_broker.bootstrap, read_only=True)
    with RunningConsole(settings) as console:
        page = opened(f"{console.url}/#/topics")
        expect(page.get_by_text("Read-only")).to_be_visible()
        for place in ("topics", "topics/orders", "topics/orders/settings", "groups/billing"):
            page.goto(f"{console.url}/#/{place}")
            settled(page)
            main = page.get_by_role("main")
            offered = main.get_by_role("button", name=re.compile("New|Produce|Delete|Change|Reset"))
            expect(offered).to_have_count(0)
