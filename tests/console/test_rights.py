"""On a locked broker every endpoint is refused to who has not signed in, or has no right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from moldau.console.api.modules import MODULES
from moldau.console.endpoint import ENDPOINTS, Endpoint
from moldau.console.settings import ConsoleSettings, sign_in_properties
from moldau.security.client import ClientSecurity
from moldau.testing import Broker
from tests.console.consoles import CSRF, RunningConsole
from tests.console.test_access import add_user, admin_login

assert MODULES

# What a call without rights is answered with: refused, or nothing where others would see something.
NOTHING: dict[str, Any] = {
    "list_topics": {"topics": []},
    "list_groups": {"groups": []},
    "list_transactions": {"transactions": []},
    "list_pipelines": {"pipelines": []},
    "list_subjects": {"schemas": [], "operations": []},
    "list_tables": {"tables": []},
    "list_letter_topics": {"topics": []},
}
# Hidden as if they were not there, as brokers hide them.
HIDDEN = {
    "get_group": 404,
    "why_is_group_behind": 404,
    "get_table": 404,
    "get_transaction": 403,
    "export_search": 404,
}
HIDDEN |= {"cancel_search": 404, "follow_search": 404}
# About oneself, or about brokers, whose addresses every client is told.
HARMLESS = {
    "get_session", "sign_in", "sign_out", "get_openapi", "get_overview", "get_cluster",
    "get_series", "follow_events",
}  # fmt: skip
RULE = {"principal": "User:x", "operation": "Read", "resource": "Topic", "name": "secret"}
ASKED: dict[str, dict[str, Any]] = {
    "create_topic": {"name": "new"},
    "change_configs": {"set": {"retention.ms": "1"}},
    "add_partitions": {"count": 5},
    "produce_message": {"value": "x"},
    "begin_search": {"topic": "secret"},
    "prepare_search": {"topic": "secret"},
    "reset_group": {"topic": "secret", "to": "end"},
    "register_schema": {"schema": '"string"'},
    "check_schema": {"schema": '"string"'},
    "redrive_letters": {"letters": [{"partition": 0, "offset": 0}]},
    "change_quotas": {"entity": {"user": "x"}, "limits": {"request_percentage": 1}},
    "set_user": {"name": "new", "password": "a-long-one"},
    "add_acl": RULE,
    "delete_acl": RULE,
    "who_may": {"resource": "topic:secret"},
    "get_table": {"path": "/"},
    "get_series": {"names": "topic:secret.in_msgs"},
}
NAMES = {"topic": "secret", "group": "secret-group", "id": "secret-id", "subject": "secret-value"}


@pytest.fixture(scope="module")
def locked() -> Iterator[tuple[Broker, RunningConsole]]:
    with Broker(secure=True, http_listen="127.0.0.1:0") as broker:
        own = ClientSecurity.parse(broker.client_settings)
        settings = ConsoleSettings(
            broker.bootstrap,
            own,
            sign_in_properties(broker.client_settings),
            registry=broker.http_url,
        )
        with RunningConsole(settings) as console:
            console.post("api/session", admin_login(broker))
            console.post("api/topics", {"name": "secret"}, 201)
            console.post("api/topics/secret/messages", {"value": "hidden"}, 201)
            console.post("api/schemas/secret-value/versions", {"schema": '"string"'}, 201)
            console.send("DELETE", "api/session")
            add_user(broker, "nobody", "secret-1")
            yield broker, console


def ask(console: RunningConsole, each: Endpoint) -> httpx.Response:
    path = re.sub(r"\{(\w+)(:\w+)?\}", lambda name: NAMES.get(name[1], "1"), each.path)
    asked = ASKED.get(each.name, {})
    if each.asks_in_query:
        request = console.http.build_request(each.method, path, params=asked, headers=CSRF)
    else:
        request = console.http.build_request(each.method, path, json=asked, headers=CSRF)
    answer = console.http.send(request, stream=True)
    try:
        if answer.headers["content-type"] != "text/event-stream":
            answer.read()
    finally:
        answer.close()
    return answer


def test_nobody_gets_anything_without_signing_in(locked: tuple[Broker, RunningConsole]) -> None:
    _, console = locked
    console.http.cookies.clear()
    given = {each.name: ask(console, each).status_code for each in ENDPOINTS if not each.is_open}
    assert {name: status for name, status in given.items() if status != 401} == {}
    is_open = {each.name for each in ENDPOINTS if each.is_open}
    assert is_open - {"begin_oidc", "end_oidc"} == {
        "get_session", "sign_in", "sign_out", "get_openapi",
    }  # fmt: skip


def test_without_rights_every_call_is_refused_or_answered_with_nothing(
    locked: tuple[Broker, RunningConsole],
) -> None:
    _, console = locked
    console.post("api/session", {"user": "nobody", "password": "secret-1"})
    wrong = {}
    for each in ENDPOINTS:
        if each.name in HARMLESS or each.is_open:
            continue
        answer = ask(console, each)
        if each.name in NOTHING:
            if answer.json() != NOTHING[each.name]:
                wrong[each.name] = answer.text
        elif answer.status_code not in (HIDDEN.get(each.name, 403), 403):
            wrong[each.name] = f"{answer.status_code} {answer.text}"
    console.send("DELETE", "api/session")
    assert wrong == {}


def test_what_everybody_may_see_says_nothing_of_what_is_hidden(
    locked: tuple[Broker, RunningConsole],
) -> None:
    _, console = locked
    console.post("api/session", {"user": "nobody", "password": "secret-1"})
    overview = console.get("api/overview")
    assert overview["counts"]["topics"] == 0
    assert "secret" not in str(overview)
    assert console.get("api/series", names="topic:secret.in_msgs")["series"] == {}
    assert all(each["bytes"] is None for each in console.get("api/cluster")["brokers"])
    console.send("DELETE", "api/session")
