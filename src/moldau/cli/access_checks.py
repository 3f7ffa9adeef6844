"""Checks of rights: what is lacking for a topic or a group, and the command that grants it."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.cli.checks import Finding, Status
from moldau.cli.commands.access.acls import grant_command
from moldau.cli.requests import ask
from moldau.cli.views.output import Failure
from moldau.security.client_config import client_user
from moldau.wire.acls import Operation, Resource, in_words
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# Kafka's value for operations that were not looked up.
_UNKNOWN = -(1 << 31)
# The last version that tells the rights on a group that does not exist yet.
_ANY_GROUP = 5


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
    return _finding(Resource.TOPIC, topic, needed, held, found.error_code)


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
    return _finding(Resource.GROUP, group, (Operation.READ,), held, found.error_code)


def _finding(
    kind: Resource, name: str, needed: tuple[Operation, ...], held: int, code: int
) -> Finding:
    what = f"{in_words(kind)} {name}"
    if held == _UNKNOWN:
        return Finding("access", Status.WARN, f"{what}: {Error(code).name}", "")
    lacking = [each for each in needed if not held >> each & 1]
    if not lacking:
        granted = ", ".join(in_words(each) for each in needed)
        return Finding("access", Status.OK, f"{what}: {granted} granted")
    who = f"User:{client_user() or 'YOU'}"
    words = ", ".join(in_words(each) for each in lacking)
    commands = "; ".join(grant_command(who, each, kind, name) for each in lacking)
    return Finding("access", Status.FAIL, f"{what}: no right to {words}", commands)
