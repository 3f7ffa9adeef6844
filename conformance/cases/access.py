"""Every API with no right, the right one, a prefixed one, a deny beside an allow, a wrong host.

On brokers with Kafka's StandardAuthorizer, where the connection of the session is a super user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from conformance.cases.access_questions import QUESTIONS, Question, Right, every
from conformance.registry import CASES, Case
from conformance.session import Session
from moldau.wire.acls import PatternType, Permission, Resource
from moldau.wire.apis import Api

GROUP = "Access"
USER = "alice"
# The first version in which topics go by their ids.
_BY_ID = {Api.PRODUCE: 13, Api.FETCH: 13, Api.OFFSET_COMMIT: 10, Api.OFFSET_FETCH: 10}


def _grant(
    s: Session,
    rights: list[Right],
    *,
    prefixed: bool = False,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> None:
    creations = [
        {
            "resource_type": kind,
            "resource_name": name[:-1] if prefixed and kind is not Resource.CLUSTER else name,
            "resource_pattern_type": PatternType.PREFIXED if prefixed else PatternType.LITERAL,
            "principal": f"User:{USER}",
            "host": host,
            "operation": operation,
            "permission_type": permission,
        }
        for operation, kind, name in rights
    ]
    s.quietly(Api.CREATE_ACLS, 3, creations=creations)

    def is_known() -> bool:
        known = _rules(s)
        return all(
            (each["resource_type"], each["resource_name"], each["resource_pattern_type"],
             each["host"], each["operation"], each["permission_type"]) in known
            for each in creations
        )  # fmt: skip

    s.until(is_known, "the new rules")
    # Kafka's controller judges by rules of its own, which it hears of at the same time.
    s.settle()


def _revoke(s: Session) -> None:
    everything = every() | {"principal_filter": f"User:{USER}"}
    s.quietly(Api.DELETE_ACLS, 3, filters=[everything])
    s.until(lambda: not _rules(s), "the end of the old rules")
    s.settle()


def _rules(s: Session) -> set[tuple[Any, ...]]:
    """The user's rules, as the broker knows them by now."""
    answer = s.quietly(Api.DESCRIBE_ACLS, 3, **(every() | {"principal_filter": f"User:{USER}"}))
    return {
        (kind.resource_type, kind.resource_name, kind.pattern_type, rule.host, rule.operation,
         rule.permission_type)
        for kind in answer.resources
        for rule in kind.acls
    }  # fmt: skip


def _by_id(values: Any, topic: str, topic_id: UUID) -> Any:
    """Name the topic by its id as well: versions that have one know no names."""
    if isinstance(values, list):
        return [_by_id(each, topic, topic_id) for each in values]
    if not isinstance(values, dict):
        return values
    found = {key: _by_id(each, topic, topic_id) for key, each in values.items()}
    if topic in (found.get("name"), found.get("topic")):
        found["topic_id"] = topic_id
    return found


def _script(api: Api, question: Question) -> Callable[[Session, int], None]:
    def script(s: Session, version: int) -> None:
        topic, group = s.topic(), s.name("g")
        s.quietly(Api.FIND_COORDINATOR, 3, key=group)
        question.prepare(s, topic, group)
        _revoke(s)
        alice = s.log_in(USER)

        topic_id = s.topic_id(topic)

        def ask(what: str, user: Any = alice) -> None:
            values = question.values(s, topic, group)
            if version >= _BY_ID.get(api, 1 << 15):
                values = _by_id(values, topic, topic_id)
            if question.shown is None:
                s.ask(what, api, version, via=user, **values)
            else:
                s.note(what, question.shown(s, user.ask(api, version, values)), api)

        rights = question.rights(topic, group)
        ask("no right")
        _grant(s, rights, host="10.9.9.9")
        ask("a wrong host")
        for count, right in enumerate(rights, 1):
            _grant(s, [right])
            ask(f"{count} of {len(rights)} rights")
        _grant(s, rights, permission=Permission.DENY)
        ask("a deny beside an allow")
        _revoke(s)
        _grant(s, rights, prefixed=True)
        ask("prefixed")
        _revoke(s)
        ask("no right any more")
        ask("a super user", s.log_in("root"))

    return script


def register(api: Api, name: str, question: Question) -> None:
    """Add a case: the question in its oldest and its newest version."""
    first, last = question.first, question.last
    script = _script(api, question)
    CASES.append(Case(GROUP, api, name, script, first, last, ends=True, locked=True))


for _api, _question in QUESTIONS.items():
    register(_api, _api.name.lower(), _question)
