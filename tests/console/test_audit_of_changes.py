"""Every call that changes something is in the audit trail, with who made it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from moldau.console.api.modules import MODULES
from moldau.console.audit import AuditRecord
from moldau.console.endpoint import ENDPOINTS
from moldau.console.settings import ConsoleSettings, sign_in_properties
from moldau.security.client import ClientSecurity
from moldau.testing import Broker
from tests.console.api.test_dead_letters import letter
from tests.console.consoles import CSRF, RunningConsole
from tests.console.test_access import admin_login

assert MODULES

RULE = {"principal": "User:ann", "operation": "Read", "resource": "Topic", "name": "orders"}
# The calls in an order in which each finds what it changes: the address, what is asked, and what
# the audit trail says.
CALLS: dict[str, tuple[str, Any, str]] = {
    "create_topic": ("api/topics", {"name": "orders"}, "created topic"),
    "change_configs": (
        "api/topics/orders/configs", {"set": {"retention.ms": "1000000"}}, "changed settings",
    ),
    "add_partitions": ("api/topics/orders/partitions", {"count": 2}, "added partitions"),
    "produce_message": ("api/topics/orders/messages", {"value": "x"}, "produced"),
    "redrive_letters": (
        "api/dead-letters/bills-dead-letters/redrive", {"all": True}, "redrove letters",
    ),
    "reset_group": ("api/groups/billing/reset", {"topic": "bills", "to": "end"}, "reset group"),
    "delete_group": ("api/groups/billing", None, "deleted group"),
    "abort_transaction": ("api/transactions/ledger/abort", {}, "aborted transaction"),
    "register_schema": (
        "api/schemas/one-value/versions", {"schema": '"string"'}, "registered schema",
    ),
    "delete_version": ("api/schemas/one-value/versions/1", None, "deleted schema"),
    "delete_subject": ("api/schemas/two-value", None, "deleted subject"),
    "change_quotas": (
        "api/security/quotas",
        {"entity": {"user": "ann"}, "limits": {"request_percentage": 50}},
        "changed quotas",
    ),
    "set_user": ("api/security/users", {"name": "ann", "password": "a-long-one"}, "set password"),
    "delete_user": ("api/security/users/ann", None, "deleted user"),
    "add_acl": ("api/security/acls", RULE, "added acl"),
    "delete_acl": ("api/security/acls", RULE, "deleted acl"),
    "delete_topic": ("api/topics/orders", None, "deleted topic"),
    "sign_out": ("api/session", None, "signed out"),
    "sign_in": ("api/session", None, "signed in"),
}  # fmt: skip
# What is asked with a body, and changes nothing that others see.
HARMLESS = {"check_schema", "begin_search", "prepare_search", "cancel_search"}
WITH_PREVIEW: dict[str, dict[str, Any]] = {
    "create_topic": {"name": "another"},
    "reset_group": {"topic": "bills", "to": "beginning"},
    "redrive_letters": {"all": True},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True, http_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def console(broker: Broker) -> Iterator[RunningConsole]:
    """A console where the admin of the brokers has signed in."""
    settings = ConsoleSettings(
        broker.bootstrap,
        ClientSecurity.parse(broker.client_settings),
        sign_in_properties(broker.client_settings),
        registry=broker.http_url,
    )
    with RunningConsole(settings) as console:
        console.post("api/session", admin_login(broker))
        yield console


@contextmanager
def something_to_change(broker: Broker, console: RunningConsole) -> Iterator[None]:
    """Dead letters, a group, an open transaction and a subject."""
    for name in ("bills", "bills-dead-letters"):
        console.post("api/topics", {"name": name}, 201)
    path = "api/topics/bills-dead-letters/messages"
    console.post(path, letter("bills", 0, "not JSON", "{}"), 201)
    console.post("api/schemas/two-value/versions", {"schema": '"string"'}, 201)
    consumer = confluent_kafka.Consumer(broker.librdkafka_settings | {"group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("bills", 0, 0)], asynchronous=False)
    consumer.close()
    producer = confluent_kafka.Producer(broker.librdkafka_settings | {"transactional.id": "ledger"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("bills", "x")
    assert producer.flush(30) == 0
    yield


def noted(console: RunningConsole) -> list[AuditRecord]:
    """Return all that the audit trail has, the oldest first."""
    return console.console.audit.last(1000)[::-1]


def test_every_call_that_changes_something_is_in_the_audit_trail(
    broker: Broker, console: RunningConsole
) -> None:
    declared = {each.name: each for each in ENDPOINTS}
    assert {each.name for each in ENDPOINTS if each.changes} == CALLS.keys()
    admin = admin_login(broker)
    with something_to_change(broker, console):
        for name, asked in WITH_PREVIEW.items():
            before = len(noted(console))
            console.post(CALLS[name][0], asked | {"preview": True}, declared[name].status)
            assert len(noted(console)) == before, name
        for name, (path, asked, action) in CALLS.items():
            endpoint = declared[name]
            pattern = re.sub(r"\{\w+(:\w+)?\}", "[^/]+", endpoint.path)
            assert re.fullmatch(pattern, path), name
            before = len(noted(console))
            body = admin if name == "sign_in" else asked
            in_query = endpoint.asks_in_query
            answer = console.http.request(
                endpoint.method,
                path,
                headers=CSRF,
                params=body if in_query else None,
                json=None if in_query else body,
            )
            assert answer.status_code == endpoint.status, f"{name}: {answer.text}"
            told = noted(console)[before:]
            assert [each.action for each in told] == [action], name
            assert (told[0].user, told[0].address) == (admin["user"], "127.0.0.1"), name


def test_what_is_no_get_changes_something_unless_it_is_known_to_be_harmless() -> None:
    """Or it would need neither a right to change nor an entry in the audit trail."""
    others = {each.name for each in ENDPOINTS if each.method != "GET" and not each.changes}
    assert others == HARMLESS


@pytest.mark.parametrize("name", ["delete_topic", "add_acl", "set_user"])
def test_a_change_that_is_refused_is_not_told_as_one_that_was_made(
    console: RunningConsole, name: str
) -> None:
    wrong: dict[str, tuple[str, str, Any]] = {
        "delete_topic": ("DELETE", "api/topics/nowhere", None),
        "add_acl": ("POST", "api/security/acls", RULE | {"operation": "Fly"}),
        "set_user": ("POST", "api/security/users", {"name": "", "password": "a-long-one"}),
    }
    before = len(noted(console))
    method, path, body = wrong[name]
    answer = console.http.request(method, path, json=body, headers=CSRF)
    assert 400 <= answer.status_code < 500, answer.text
    assert len(noted(console)) == before
