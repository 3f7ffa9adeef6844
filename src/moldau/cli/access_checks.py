"""Checks of rights: what is lacking for a topic or a group, and the command that grants it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.cli.checks import Finding, Status
from moldau.cli.commands.access.acls import (
    explain_command,
    find_rules,
    grant_command,
    removal_command,
)
from moldau.cli.requests import ask
from moldau.cli.views.output import Failure
from moldau.security.client_config import client_security, client_user
from moldau.wire.acls import ANYBODY, WILDCARD, Operation, Permission, Resource, in_words
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# Kafka's value for operations that were not looked up.
_UNKNOWN = -(1 << 31)
# The last version that tells the rights on a group that does not exist yet.
_ANY_GROUP = 5
_ALL = in_words(Operation.ALL)


def check_access(bootstrap: str, topic: str | None, group: str | None) -> Iterator[Finding]:
    """Say what is lacking to produce to a topic, to consume it, or to be in a group."""
    try:
        if topic is not None:
            yield _check_topic(bootstrap, topic, (Operation.READ, Operation.WRITE))
        if group is not None:
            yield _check_group(bootstrap, group)
    except Failure as failure:
        yield Finding("access", Status.FAIL, failure.message, failure.advice)


def require_right(bootstrap: str, operation: Operation, topic: str) -> None:
    """Failure if this is not granted; a topic that is not there yet may be created."""
    found = _check_topic(bootstrap, topic, (operation,))
    if found.status is Status.FAIL:
        raise Failure(found.detail, found.advice)


def _check_topic(bootstrap: str, topic: str, needed: tuple[Operation, ...]) -> Finding:
    wanted = {
        "topics": [{"name": topic}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    found = ask(bootstrap, Api.METADATA, wanted).topics[0]
    may_see = found.error_code != Error.TOPIC_AUTHORIZATION_FAILED
    held = found.topic_authorized_operations if may_see else 0
    return _finding(bootstrap, Resource.TOPIC, topic, needed, held, found.error_code)


def _check_group(bootstrap: str, group: str) -> Finding:
    wanted = {"groups": [group], "include_authorized_operations": True}
    found = ask(bootstrap, Api.DESCRIBE_GROUPS, wanted, _ANY_GROUP).groups[0]
    if found.error_code == Error.NOT_COORDINATOR:
        asked = {"key_type": 0, "coordinator_keys": [group]}
        (home,) = ask(bootstrap, Api.FIND_COORDINATOR, asked).coordinators
        if not home.error_code:
            at = f"{home.host}:{home.port}"
            found = ask(at, Api.DESCRIBE_GROUPS, wanted, _ANY_GROUP).groups[0]
    may_see = found.error_code != Error.GROUP_AUTHORIZATION_FAILED
    held = found.authorized_operations if may_see else 0
    return _finding(bootstrap, Resource.GROUP, group, (Operation.READ,), held, found.error_code)


def _finding(
    bootstrap: str,
    kind: Resource,
    name: str,
    needed: tuple[Operation, ...],
    held: int,
    code: int,
) -> Finding:
    what = f"{in_words(kind)} {name}"
    if held == _UNKNOWN:
        return Finding("access", Status.WARN, f"{what}: {Error(code).name}", "")
    lacking = [each for each in needed if not held >> each & 1]
    if not lacking:
        granted = ", ".join(in_words(each) for each in needed)
        return Finding("access", Status.OK, f"{what}: {granted} granted")
    who = _who()
    rules = _denials(bootstrap, kind, name, who)
    detail = f"{what}: no right to {', '.join(in_words(each) for each in lacking)}"
    commands: list[str] = []
    denials: list[dict[str, Any]] = []
    for each in lacking:
        matching = [rule for rule in rules or () if rule["operation"] in (in_words(each), _ALL)]
        denials += matching
        # No other rule helps against one that denies.
        commands += [removal_command(rule) for rule in matching] or [
            grant_command(who, each, kind, name)
        ]
    if denials:
        detail += f" ({'; '.join(dict.fromkeys(map(_in_words, denials)))})"
    elif rules is None:
        asked = explain_command(who, lacking[0], kind, name)
        detail += (
            f"; run `{asked}` to see whether a rule denies it, with a user that may read the rules"
        )
    return Finding("access", Status.FAIL, detail, "; ".join(dict.fromkeys(commands)))


def _who() -> str:
    """Return who we are to the brokers, as far as we know."""
    user = client_user()
    if user:
        return f"User:{user}"
    return "User:ANONYMOUS" if client_security() is None else "User:YOU"


def _denials(bootstrap: str, kind: Resource, name: str, who: str) -> list[dict[str, Any]] | None:
    """Return the rules that deny us something; None where we may not read the rules."""
    try:
        found = find_rules(bootstrap, None, [(kind, name)])
    except Failure:
        return None
    deny = in_words(Permission.DENY)
    return [
        rule for rule in found if rule["permission"] == deny and rule["principal"] in (who, ANYBODY)
    ]


def _in_words(rule: dict[str, Any]) -> str:
    name = rule["name"] + ("*" if rule["prefix"] else "")
    host = "any host" if rule["host"] == WILDCARD else rule["host"]
    what = f"{rule['operation']} on {rule['resource']} {name}"
    return f"Deny {rule['principal']} {what} from {host}"
