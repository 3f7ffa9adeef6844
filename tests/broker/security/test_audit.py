"""The audit: a flood stays one line, and nothing is lost of what it was."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from moldau.broker.security.audit import Audit
from moldau.broker.security.principal import Principal
from moldau.broker.security.standard_authorizer import StandardAuthorizer
from moldau.cluster.state.access import Acl, ResourcePattern
from moldau.wire.acls import Operation, PatternType, Permission, Resource
from moldau.wire.apis import Api

ALICE = Principal("User", "alice")
RULES = {
    ResourcePattern(Resource.TOPIC, "pub", PatternType.PREFIXED): (
        Acl("User:*", "*", Operation.READ, Permission.ALLOW),
    )
}


class Clock:
    """Calls that somebody wants later."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def call_later(self, delay: float, call: Any) -> asyncio.TimerHandle:
        self.calls.append(call)
        return asyncio.TimerHandle(0.0, call, (), asyncio.new_event_loop())


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "moldau.audit"]


def test_a_flood_of_refusals_is_one_line_at_once_and_one_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    clock = Clock()
    audit = Audit(clock.call_later, 60_000)
    published: list[Any] = []
    audit.publish = published.extend
    authorizer = StandardAuthorizer(RULES, frozenset(), audit=audit)
    for number in range(1000):
        topic = f"secret-{number}"
        assert not authorizer.allows(
            ALICE, "10.0.0.1", Operation.WRITE, Resource.TOPIC, topic, Api.PRODUCE
        )
    assert authorizer.allows(ALICE, "10.0.0.1", Operation.READ, Resource.TOPIC, "public", Api.FETCH)
    assert told(caplog) == [
        "denied: User:alice from 10.0.0.1, Write on Topic 'secret-0' for PRODUCE "
        "(no rule for the resource)"
    ]
    (tell,) = clock.calls
    tell()
    (_, last) = told(caplog)
    assert last.startswith("denied 1000 times: User:alice from 10.0.0.1, Write on Topic 'secret-0'")
    assert "and others for PRODUCE" in last
    (entry,) = published
    assert entry | {"names": []} == {
        "decision": "denied",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "api": "PRODUCE",
        "operation": "Write",
        "resource": "Topic",
        "names": [],
        "rule": "no rule for the resource",
        "count": 1000,
    }


def test_admissions_are_told_on_request_with_their_rule(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    audit = Audit(Clock().call_later, 60_000, with_admissions=True)
    authorizer = StandardAuthorizer(RULES, frozenset({"User:root"}), audit=audit)
    authorizer.allows(ALICE, "10.0.0.1", Operation.READ, Resource.TOPIC, "public", Api.FETCH)
    authorizer.allows(
        Principal("User", "root"), "10.0.0.1", Operation.READ, Resource.TOPIC, "x", Api.FETCH
    )
    assert told(caplog) == [
        "allowed: User:alice from 10.0.0.1, Read on Topic 'public' for FETCH "
        "(Allow User:* Read on Topic pub* from any host)",
        "allowed: User:root from 10.0.0.1, Read on Topic 'x' for FETCH (super.users)",
    ]


def test_what_is_only_left_out_is_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    authorizer = StandardAuthorizer(RULES, frozenset(), audit=Audit(Clock().call_later, 60_000))
    assert not authorizer.allows(
        ALICE, "h", Operation.WRITE, Resource.TOPIC, "x", Api.METADATA, quietly=True
    )
    assert told(caplog) == []


def test_kinds_beyond_the_bound_share_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    audit = Audit(Clock().call_later, 60_000)
    authorizer = StandardAuthorizer({}, frozenset(), audit=audit)
    for number in range(3000):
        who = Principal("User", f"u{number}")
        authorizer.allows(who, "h", Operation.READ, Resource.GROUP, "g", Api.HEARTBEAT)
    audit.tell()
    lines = told(caplog)
    assert len(lines) == 1002
    assert lines[-1].startswith("denied 2000 times: others from anywhere")


def test_names_are_told_in_short(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    audit = Audit(Clock().call_later, 60_000)
    authorizer = StandardAuthorizer(RULES, frozenset(), audit=audit)
    for letter in "abcdefghijklmnop":
        authorizer.allows(ALICE, "10.0.0.1", Operation.READ, Resource.TOPIC, letter * 30_000)
    audit.tell()
    assert all(len(line) < 4_000 for line in told(caplog))
    assert "aaa…" in told(caplog)[0]


def test_nobody_writes_a_line_of_their_own_by_their_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    authorizer = StandardAuthorizer(
        RULES, frozenset(), audit=Audit(Clock().call_later, 60_000, with_admissions=True)
    )
    for name in ("eve\nallowed: User:eve", "eve\u2028allowed", "é"):
        authorizer.allows(Principal("User", name), "10.0.0.1", Operation.READ, Resource.TOPIC, "x")
    lines = told(caplog)
    assert all(len(line.splitlines()) == 1 for line in lines)
    assert "User:é from" in lines[2]
