"""A locked cluster in the browser: signing in, users, rules and who may read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.console.settings import ConsoleSettings, OidcSettings, sign_in_properties
from moldau.http.thread import HttpThread
from moldau.testing import Broker
from tests.console.api.test_dead_letters import letter, share_letter
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened
from tests.console.page.filling import commit
from tests.console.test_access import admin_login
from tests.console.test_oidc import Issuer

pytestmark = pytest.mark.slow


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    with HttpThread("127.0.0.1", 0, made.routes()) as server:
        made.url = server.url
        yield made


@pytest.fixture
def locked() -> Iterator[Broker]:
    with Broker(secure=True, http_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def locked_console(locked: Broker) -> Iterator[RunningConsole]:
    settings = ConsoleSettings(
        locked.bootstrap,
        sign_in=sign_in_properties(locked.client_settings),
        registry=locked.http_url,
    )
    with RunningConsole(settings) as console:
        yield console


def test_a_person_signs_in_and_gives_another_the_right_to_read_within_a_quota(
    opened: Opened, locked: Broker, locked_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    login = admin_login(locked)
    page = opened(f"{locked_console.url}/#/security/users")
    page.get_by_label("User").fill(login["user"])
    page.get_by_label("Password").fill("something else")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong name or password")
    page.get_by_label("Password").fill(login["password"])
    page.get_by_role("button", name="Sign in").click()

    # The address of the first visit is where one arrives.
    page.get_by_role("button", name="New user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User").fill("ann")
    dialog.get_by_label("Password").fill("a long password")
    dialog.get_by_role("button", name="Save user").click()
    expect(page.get_by_role("row", name="ann")).to_be_visible()

    page.get_by_role("link", name="Rules").click()
    page.get_by_role("button", name="New rule").click()
    dialog.get_by_label("Principal").fill("User:ann")
    dialog.get_by_label("Name", exact=True).fill("orders")
    dialog.get_by_role("button", name="Add rule").click()
    expect(page.get_by_role("row", name="User:ann")).to_be_visible()

    page.get_by_role("link", name="Who may").click()
    page.get_by_label("Topic").fill("orders")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("row", name="May User:ann")).to_be_visible()
    page.get_by_role("link", name="Quotas").click()
    page.get_by_role("button", name="New quota").click()
    dialog.get_by_role("textbox", name="User").fill("ann")
    dialog.get_by_label("Value").fill("2048")
    dialog.get_by_role("button", name="Save quota").click()
    row = page.get_by_role("row", name="user ann")
    expect(row).to_contain_text("2 KiB/s")
    row.get_by_role("button", name="Change").click()
    dialog.get_by_label("Bytes written").fill("4096")
    dialog.get_by_role("button", name="Save quota").click()
    expect(row).to_contain_text("4 KiB/s")
    row.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove quota").click()
    expect(row).to_have_count(0)
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_label("Audit trail", exact=True)).to_contain_text("ann")

    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_user_is_not_offered_what_the_brokers_would_refuse(
    opened: Opened, locked: Broker, locked_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    locked_console.post("api/session", admin_login(locked))
    locked_console.post("api/topics", {"name": "orders", "partitions": 1}, 201)
    user = {"name": "ben", "password": "a long password"}
    locked_console.post("api/security/users", user, 201)
    for operation in ("Read", "Describe"):
        rule = {
            "principal": "User:ben",
            "operation": operation,
            "resource": "Topic",
            "name": "orders",
        }
        locked_console.post("api/security/acls", rule, 201)

    page = opened(f"{locked_console.url}/#/topics/orders")
    page.get_by_label("User").fill("ben")
    page.get_by_label("Password").fill("a long password")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("No messages here")).to_be_visible()
    expect(page.get_by_role("button", name="Produce")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    page.get_by_role("link", name="Topics").first.click()
    expect(page.get_by_role("option", name="orders")).to_be_visible()
    expect(page.get_by_role("button", name="New topic")).to_have_count(0)


@pytest.mark.parametrize("may", [False, True])
def test_groups_letters_and_schemas_offer_what_a_user_may_do_and_nothing_else(
    opened: Opened, locked: Broker, locked_console: RunningConsole, may: bool
) -> None:
    from playwright.sync_api import expect

    console = locked_console
    console.post("api/session", admin_login(locked))
    for topic in ("orders", "orders-dead-letters", "dlq.orders"):
        console.post("api/topics", {"name": topic, "partitions": 1}, 201)
    written = letter("orders", 4, "not JSON", "{broken")
    console.post("api/topics/orders-dead-letters/messages", written, 201)
    given_up = share_letter(4) | {"value": "given up"}
    given_up["headers"][0][1] = "orders"
    console.post("api/topics/dlq.orders/messages", given_up, 201)
    console.post("api/schemas/orders-value/versions", {"schema": '"string"'}, 201)
    commit(locked, "billing", "orders", 1)
    console.post("api/security/users", {"name": "ben", "password": "a long password"}, 201)
    granted = [
        ("Topic", "orders", "Describe"),
        ("Topic", "orders-dead-letters", "Read"),
        ("Topic", "dlq.orders", "Read"),
        ("Group", "billing", "Describe"),
    ]
    if may:
        granted += [
            ("Topic", "orders", "Write"), ("Topic", "orders", "Delete"),
            ("Group", "billing", "Delete"), ("Group", "billing", "Read"),
            ("Topic", "__moldau_redrives", "Write"),
        ]  # fmt: skip
    for resource, name, operation in granted:
        rule = {"principal": "User:ben", "operation": operation}
        console.post("api/security/acls", rule | {"resource": resource, "name": name}, 201)
    offered = int(may)

    page = opened(f"{console.url}/#/groups/billing")
    page.get_by_label("User").fill("ben")
    page.get_by_label("Password").fill("a long password")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Table of partitions")).to_be_visible()
    expect(page.get_by_role("button", name="Delete")).to_have_count(offered)
    expect(page.get_by_role("button", name="Reset offsets")).to_have_count(offered)

    for topic in ("orders-dead-letters", "dlq.orders"):
        page.goto(f"{console.url}/#/dead-letters/{topic}?at=0%2F0")
        pane = page.get_by_role("complementary", name="Message 0 of partition 0")
        expect(pane).to_contain_text("Came from orders")
        expect(pane.get_by_role("button", name="Edit")).to_have_count(offered)
        expect(page.get_by_role("button", name="Redrive all")).to_have_count(offered)
        expect(page.get_by_role("button", name="Redrive", exact=True)).to_have_count(offered)

    page.goto(f"{console.url}/#/schemas")
    expect(page.get_by_role("link", name="orders-value")).to_be_visible()
    expect(page.get_by_role("link", name="New schema")).to_have_count(offered)
    page.goto(f"{console.url}/#/schemas?new=other")
    expect(page.get_by_role("link", name="orders-value")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(offered)
    page.goto(f"{console.url}/#/schemas/orders-value")
    expect(page.get_by_label("Compare with")).to_be_visible()
    expect(page.get_by_role("button", name="New version")).to_have_count(offered)
    expect(page.get_by_role("button", name="Delete")).to_have_count(offered)


def test_a_person_signs_in_with_an_issuer_and_is_back_at_the_address_of_the_first_visit(
    opened: Opened, own_broker: Broker, issuer: Issuer
) -> None:
    from playwright.sync_api import expect

    oidc = OidcSettings(issuer.url, "console")
    with RunningConsole(ConsoleSettings(own_broker.bootstrap, oidc=oidc)) as console:
        page = opened(f"{console.url}/#/topics?q=orders")
        page.get_by_role("link", name="Continue with your identity provider").click()
        expect(page.get_by_role("heading", name="Topics")).to_be_visible()
        assert page.url == f"{console.url}/#/topics?q=orders"
        expect(page.get_by_text("ann", exact=True).first).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert page.get_by_label("Password").count() == 0
