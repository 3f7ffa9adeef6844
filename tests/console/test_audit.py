"""The audit trail: what is in it, and how little of it a stranger can write."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from moldau.console.audit import Audit, AuditRecord
from moldau.console.settings import ConsoleSettings, sign_in_properties
from moldau.console.visitor import Visitor
from moldau.testing import Broker
from tests.console.consoles import RunningConsole

MALLORY = Visitor("mallory", None, "10.0.0.1")
ALICE = Visitor("alice", None, "10.0.0.2")


@pytest.fixture
def published() -> list[AuditRecord]:
    return []


@pytest.fixture
def audit(published: list[AuditRecord], caplog: pytest.LogCaptureFixture) -> Iterator[Audit]:
    caplog.set_level(logging.INFO, "moldau.console.audit")
    audit = Audit(published.append)
    yield audit
    audit.close()


def test_a_flood_of_wrong_passwords_is_one_record_and_two_lines(
    audit: Audit, published: list[AuditRecord], caplog: pytest.LogCaptureFixture
) -> None:
    audit.note(ALICE, "created topic", {"topic": "t"})
    for _ in range(2000):
        audit.refuse(MALLORY)
    assert [(each.user, each.action) for each in audit.last(10)] == [
        ("mallory", "sign in refused"),
        ("alice", "created topic"),
    ]
    assert audit.last(1)[0].details == {"times": 2000}
    assert (len(published), len(caplog.messages)) == (2, 2)
    audit.tell_refusals()
    assert caplog.messages[-1] == 'mallory from 10.0.0.1: sign in refused {"times":2000}'
    assert (len(published), len(caplog.messages)) == (3, 3)
    # Nothing is told twice, and the next one is counted anew.
    audit.tell_refusals()
    audit.refuse(MALLORY)
    assert (len(published), len(caplog.messages)) == (4, 4)
    assert audit.last(1)[0].details == {"times": 1}


def test_names_that_are_all_different_do_not_push_out_changes(
    audit: Audit, published: list[AuditRecord], caplog: pytest.LogCaptureFixture
) -> None:
    audit.note(ALICE, "created topic", {})
    for number in range(5000):
        audit.refuse(Visitor(f"mallory-{number}", None, "10.0.0.1"))
    assert "created topic" in [each.action for each in audit.last(1000)]
    assert len(published) == len(caplog.messages) < 110
    audit.tell_refusals()
    assert 'others from other addresses: sign in refused {"times":4900}' in caplog.messages


def test_a_name_cannot_forge_a_line(audit: Audit, caplog: pytest.LogCaptureFixture) -> None:
    audit.refuse(Visitor("x\nadmin from 10.0.0.9: deleted topic {}", None, "10.0.0.1"))
    (line,) = caplog.messages
    assert "\n" not in line
    assert r"x\nadmin" in line


@pytest.fixture(scope="module")
def console() -> Iterator[RunningConsole]:
    with Broker(secure=True) as broker:
        sign_in = sign_in_properties(broker.client_settings)
        with RunningConsole(ConsoleSettings(broker.bootstrap, sign_in=sign_in)) as console:
            yield console


@pytest.mark.parametrize(
    "user", ["admin\n", "bell\x07", "🦆", "nul\0", "\u200f", "a,b=c", "pa\u0308", "x" * 256]
)
def test_names_and_passwords_of_every_kind_are_wrong_ones(
    console: RunningConsole, user: str
) -> None:
    wrong = console.post("api/session", {"user": user, "password": "wrong"}, 401)
    assert wrong["error"]["code"] == "wrong_password"
    console.post("api/session", {"user": "admin", "password": user}, 401)
    assert console.console.audit.last(1)[0].action == "sign in refused"


def test_long_names_and_passwords_are_not_looked_at(console: RunningConsole) -> None:
    before = len(console.console.audit.last(1000))
    console.post("api/session", {"user": "x" * 257, "password": "wrong"}, 422)
    console.post("api/session", {"user": "x", "password": "x" * 8193}, 422)
    console.post("api/session", {"user": "", "password": "x"}, 422)
    assert len(console.console.audit.last(1000)) == before
