"""`moldau users`, `moldau acls` and `moldau quotas` against a broker that asks for rights."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.settings.access import STANDARD_AUTHORIZER
from moldau.cli.access_checks import check_access
from moldau.cli.app import run
from moldau.testing import Broker
from tests.broker.wire_client import inside


@pytest.fixture
def broker() -> Iterator[Broker]:
    given = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:root",
    }
    with Broker(given) as broker:
        yield broker


class Commands:
    """The command line, against one broker."""

    def __init__(self, broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = broker.bootstrap
        self._capfd = capfd

    def __call__(self, *words: str, status: int = 0) -> str:
        self._capfd.readouterr()
        found = run([*words, "--bootstrap", self._bootstrap])
        out, err = self._capfd.readouterr()
        assert found == status, out + err
        return out + err

    def json(self, *words: str, status: int = 0) -> Any:
        return json.loads(self(*words, "--json", status=status))


@pytest.fixture
def moldau(broker: Broker, capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(broker, capfd)


def test_users_are_added_changed_listed_and_deleted(
    broker: Broker, moldau: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "no users yet" in moldau("users", "list")
    monkeypatch.setenv("MOLDAU_USER_PASSWORD", "first secret")
    shown = moldau("users", "add", "alice")
    assert "added user alice" in shown
    assert "secret" not in shown
    both = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    assert moldau.json("users", "list") == [{"user": "alice", "mechanisms": both}]
    assert "exists already" in moldau("users", "add", "alice", status=1)

    def key() -> bytes:
        found = inside(broker, lambda server: server.credentials.scram("alice", "SCRAM-SHA-512"))
        assert found is not None
        return found.stored_key

    before = key()
    file = tmp_path / "password"
    file.write_text("second secret\n")
    moldau("users", "password", "alice", "--password-file", str(file))
    assert key() != before
    assert "no user bob" in moldau("users", "password", "bob", status=1)
    moldau("users", "delete", "alice", "--yes")
    assert moldau.json("users", "list") == []
    for each in broker.data_dir.rglob("*"):
        if each.is_file():
            assert b"secret" not in each.read_bytes()


def test_rules_are_added_listed_explained_and_removed(moldau: Commands) -> None:
    question = ("acls", "explain", "User:alice", "Read", "--topic", "orders")
    refused = moldau(*question, status=1)
    assert "User:alice may not Read on Topic orders: no rule for the resource" in refused
    assert "moldau acls add --allow User:alice --operation Read --topic orders" in refused
    added = moldau(
        "acls", "add", "--allow", "User:alice", "-o", "Read", "--topic", "ord", "--prefix"
    )
    assert "added 1 rule" in added
    assert moldau.json("acls", "list") == [
        {
            "permission": "Allow",
            "principal": "User:alice",
            "operation": "Read",
            "resource": "Topic",
            "name": "ord",
            "prefix": True,
            "host": "*",
        }
    ]
    granted = moldau(*question)
    assert "Allow User:alice Read on Topic ord* from any host" in granted
    assert moldau.json(*question)["allowed"] is True
    assert "super.users" in moldau("acls", "explain", "User:root", "Alter", "--cluster")
    moldau("acls", "add", "--deny", "User:*", "-o", "all", "--topic", "orders")
    denied = moldau(*question, status=1)
    assert "Deny User:* All on Topic orders from any host" in denied
    assert len(moldau.json("acls", "list", "--topic", "orders")) == 2
    assert "removed 1 rule" in moldau("acls", "remove", "--topic", "orders", "--yes")
    assert "removed 1 rule" in moldau("acls", "remove", "--principal", "User:alice", "--yes")
    assert "no rules" in moldau("acls", "list")


@pytest.fixture
def open_broker() -> Iterator[Broker]:
    """One where everybody may do what no rule is about."""
    given = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(given) as broker:
        yield broker


def test_who_may_not_read_the_settings_is_told_nothing_wrong(
    open_broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    moldau = Commands(open_broker, capfd)
    question = ("acls", "explain", "User:root", "Read", "--topic", "orders")
    moldau("acls", "add", "--deny", "User:bob", "-o", "Read", "--topic", "orders")
    assert "User:root may Read on Topic orders: super.users" in moldau(*question)
    moldau("acls", "add", "--allow", "User:*", "-o", "Describe", "-o", "Alter", "--cluster")
    refused = moldau(*question, status=1)
    assert "may not" not in refused
    assert "--operation DescribeConfigs --cluster" in refused


def test_the_doctor_names_the_rule_that_denies_and_how_to_remove_it(
    open_broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    moldau = Commands(open_broker, capfd)
    open_broker.create_topic("orders")
    me = "User:ANONYMOUS"
    moldau("acls", "add", "--allow", me, "-o", "all", "--topic", "orders")
    moldau("acls", "add", "--deny", me, "-o", "Write", "--topic", "ord", "--prefix")
    moldau("acls", "add", "--deny", "User:*", "-o", "all", "--topic", "*", "--host", "127.0.0.1")
    (found,) = check_access(open_broker.bootstrap, "orders", None)
    assert "no right to Read, Write" in found.detail
    assert f"Deny {me} Write on Topic ord* from any host" in found.detail
    assert "Deny User:* All on Topic * from 127.0.0.1" in found.detail
    assert "acls add" not in found.advice
    for command in found.advice.split("; "):
        assert "removed 1 rule" in moldau(*shlex.split(command)[1:], "--yes")
    (found,) = check_access(open_broker.bootstrap, "orders", None)
    assert found.detail == "Topic orders: Read, Write granted"


def test_the_doctor_advises_to_grant_where_nothing_is_denied(
    open_broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    moldau = Commands(open_broker, capfd)
    open_broker.create_topic("orders")
    moldau("acls", "add", "--allow", "User:bob", "-o", "all", "--topic", "orders")
    (found,) = check_access(open_broker.bootstrap, "orders", None)
    for command in found.advice.split("; "):
        assert "added 1 rule" in moldau(*shlex.split(command)[1:])
    (found,) = check_access(open_broker.bootstrap, "orders", None)
    assert found.detail == "Topic orders: Read, Write granted"


def test_what_cannot_be_meant_is_said_so(moldau: Commands) -> None:
    moldau("acls", "add", "--allow", "alice", "-o", "Read", "--topic", "t", status=2)
    moldau("acls", "add", "-o", "Read", "--topic", "t", status=2)
    unknown = moldau("acls", "add", "--allow", "User:a", "-o", "Fly", "--topic", "t", status=1)
    assert "one of Read, Write" in unknown
    moldau("acls", "remove", "--yes", status=2)
    assert "no user, client or address given" in moldau(
        "quotas", "set", "producer_byte_rate=1", status=1
    )
    refused = moldau("quotas", "set", "--user", "a", "such_a_limit=1", status=1)
    assert "Invalid configuration key such_a_limit" in refused


def test_quotas_are_set_listed_and_removed(moldau: Commands) -> None:
    assert "no quotas" in moldau("quotas", "list")
    moldau("quotas", "set", "--user", "alice", "producer_byte_rate=1000")
    moldau("quotas", "set", "--user", "*", "--client-id", "app", "request_percentage=12.5")
    moldau("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    assert moldau.json("quotas", "list") == [
        {"entity": {"user": "alice"}, "limits": {"producer_byte_rate": 1000.0}},
        {"entity": {"client-id": "app", "user": None}, "limits": {"request_percentage": 12.5}},
        {"entity": {"ip": "10.0.0.1"}, "limits": {"connection_creation_rate": 5.0}},
    ]
    assert "client-id app, user *" in moldau("quotas", "list")
    moldau("quotas", "set", "--user", "alice", "producer_byte_rate=10000000")
    assert "10000000" in moldau("quotas", "list")
    moldau("quotas", "remove", "--user", "alice")
    moldau("quotas", "remove", "--user", "*", "--client-id", "app", "request_percentage")
    moldau("quotas", "remove", "--ip", "10.0.0.1")
    assert moldau.json("quotas", "list") == []


def test_who_has_no_right_is_told_what_grants_it(capfd: pytest.CaptureFixture[str]) -> None:
    with Broker({"authorizer.class.name": STANDARD_AUTHORIZER}) as broker:
        moldau = Commands(broker, capfd)
        told = moldau("acls", "list", status=1)
        assert "moldau acls add --allow User:YOU --operation Describe --cluster" in told
        told = moldau("topics", "create", "orders", status=1)
        assert "moldau acls add --allow User:YOU" in told
    with Broker() as broker:
        assert "authorizer.class.name" in Commands(broker, capfd)("acls", "list", status=1)


def test_doctor_says_what_is_lacking_and_what_grants_it(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["doctor", "--data-dir", str(tmp_path), "--topic", "orders", "--group", "g"]
    with Broker({"authorizer.class.name": STANDARD_AUTHORIZER}) as broker:
        told = Commands(broker, capfd)(*words, status=1)
        assert "Topic orders: no right to Read, Write" in told
        assert "moldau acls add --allow User:ANONYMOUS --operation Write --topic orders" in told
        assert "Group g: no right to Read" in told
        # A rule may deny it, but who asks may not see the rules.
        plain = " ".join(told.split())
        assert "`moldau acls explain User:ANONYMOUS Read --group g` to see whether" in plain
    with Broker() as broker:
        told = Commands(broker, capfd)("topics", "create", "orders")
        told = Commands(broker, capfd)(*words)
        assert "Topic orders: Read, Write granted" in told
