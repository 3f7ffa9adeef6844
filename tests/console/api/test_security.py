"""Security through the console's API, on a locked broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.console.settings import ConsoleSettings, sign_in_properties
from moldau.security.client import ClientSecurity
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.console.consoles import RunningConsole


@pytest.fixture(scope="module")
def locked() -> Iterator[RunningConsole]:
    with Broker(secure=True, audit_topic="audit", audit_interval_ms=100) as broker:
        own = ClientSecurity.parse(broker.client_settings)
        assert own is not None
        settings = ConsoleSettings(
            broker.bootstrap, own, sign_in_properties(broker.client_settings)
        )
        with RunningConsole(settings) as console:
            login = own.login()
            console.post("api/session", {"user": login["username"], "password": login["password"]})
            yield console


def test_users_and_rules_are_added_shown_and_deleted(locked: RunningConsole) -> None:
    console = locked
    console.post("api/topics", {"name": "guarded"}, 201)
    console.post("api/security/users", {"name": "ann", "password": "a-long-one"}, 201)
    assert {"name": "ann", "mechanisms": ["SCRAM-SHA-512"]} in console.get("api/security/users")[
        "users"
    ]
    rule = {"principal": "User:ann", "operation": "Read", "resource": "Topic", "name": "guard"}
    console.post("api/security/acls", rule | {"prefix": True}, 201)
    deny = rule | {"principal": "User:bob", "name": "guarded", "permission": "Deny"}
    console.post("api/security/acls", deny, 201)
    assert len(console.get("api/security/acls")["acls"]) == 2
    who = console.get("api/security/who", resource="topic:guarded", operation="Read")
    assert [each["principal"] for each in who["allowed"]] == [
        "User:admin", "User:ann", "User:broker",
    ]  # fmt: skip
    assert [each["principal"] for each in who["denied"]] == ["User:bob"]
    query = {"principal": "User:bob", "operation": "Read", "resource": "Topic", "name": "guarded"}
    answer = console.http.delete(
        "api/security/acls",
        params=query | {"permission": "Deny"},
        headers={"X-Moldau-Console": "1"},
    )
    assert answer.status_code == 200, answer.text
    assert len(console.get("api/security/acls")["acls"]) == 1
    console.send("DELETE", "api/security/users/ann")
    assert console.get("api/security/users")["users"] == []
    console.post("api/security/acls", rule | {"operation": "Juggle"}, 422)


def test_quotas_are_set_changed_and_removed(locked: RunningConsole) -> None:
    console = locked
    path = "api/security/quotas"
    assert console.get(path) == {"quotas": []}
    ann = {"user": "ann"}
    console.send("PATCH", path, {"entity": ann, "limits": {"producer_byte_rate": 1000}})
    both = {"producer_byte_rate": 2000, "request_percentage": 12.5}
    console.send("PATCH", path, {"entity": ann, "limits": both})
    others = {"user": None, "client-id": "batch"}
    console.send("PATCH", path, {"entity": others, "limits": {"consumer_byte_rate": 5}})
    assert sorted(console.get(path)["quotas"], key=str) == [
        {"entity": {"client-id": "batch", "user": None}, "limits": {"consumer_byte_rate": 5.0}},
        {"entity": ann, "limits": both},
    ]
    removed = {"producer_byte_rate": None}
    console.send("PATCH", path, {"entity": ann, "limits": removed})
    assert {"entity": ann, "limits": {"request_percentage": 12.5}} in console.get(path)["quotas"]
    for entity, limits in (
        ({}, removed),
        ({"nobody": "x"}, removed),
        (ann, {}),
        (ann, {"juggling_rate": 1}),
        (ann, {"producer_byte_rate": 0}),
        ({"ip": "not an address"}, {"connection_creation_rate": 1}),
    ):
        console.send("PATCH", path, {"entity": entity, "limits": limits}, 422)
    records = console.get("api/security/audit")["records"]
    noted = [each["details"]["limits"] for each in records if each["action"] == "changed quotas"]
    assert noted[0] == removed
    assert len(noted) == 4


def test_every_change_is_in_the_audit_and_in_the_brokers_topic(locked: RunningConsole) -> None:
    console = locked
    console.post("api/topics", {"name": "noted"}, 201)
    console.send("DELETE", "api/topics/noted")
    records = console.get("api/security/audit")["records"]
    actions = [(each["user"], each["action"], each["details"].get("topic")) for each in records]
    assert ("admin", "created topic", "noted") in actions
    assert ("admin", "deleted topic", "noted") in actions
    assert console.get("api/security/audit")["topic"] == "audit"


def test_changes_are_written_to_the_audit_topic_once_brokers_have_one(
    locked: RunningConsole,
) -> None:
    console = locked
    console.console.pool.forget(console.console.settings.security)
    # Somebody is refused something, and the broker writes that down.
    console.post("api/security/users", {"name": "cy", "password": "a-long-one"}, 201)
    stranger = console.console.settings.security_of("cy", "a-long-one")
    with console.console.pool.borrowed(stranger) as cluster:
        cluster.metadata(["guarded"])
    until(
        lambda: "audit" in [t["name"] for t in console.get("api/topics")["topics"]],
        "the audit topic",
    )
    console.post("api/topics", {"name": "noted-too"}, 201)
    found = console.get("api/topics/audit/messages", limit=1000)["messages"]
    written = [each["value"]["json"] for each in found]
    mine = [each for each in written if each.get("source") == "console"]
    assert [(each["user"], each["action"]) for each in mine][-1] == ("admin", "created topic")
    trail = console.get("api/security/audit")["records"]
    assert {"console", "broker"} == {each["source"] for each in trail}
