"""Security: users, access rules, who may do something, and what was done."""

from __future__ import annotations

import hashlib
import os
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from moldau.broker.security.principal import Principal
from moldau.broker.security.standard_authorizer import StandardAuthorizer
from moldau.cluster.state.access import Acl, ResourcePattern
from moldau.console.audit import AuditRecord
from moldau.console.audit_topic import broker_records
from moldau.console.broker_settings import broker_settings
from moldau.console.call import Call
from moldau.console.endpoint import Done, endpoint
from moldau.console.errors import ApiError, check, invalid, not_found
from moldau.wire.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    Operation,
    PatternType,
    Permission,
    Resource,
    in_words,
)
from moldau.wire.apis import Api
from moldau.wire.scram import HASHES, LEAST_ITERATIONS, MECHANISMS, NUMBERS

_RESOURCES = {in_words(each): each for each in Resource if each > Resource.ANY}
_OPERATIONS = {in_words(each): each for each in Operation if each > Operation.ANY}
_PERMISSIONS = {"Allow": Permission.ALLOW, "Deny": Permission.DENY}

ResourceName = Literal["Topic", "Group", "Cluster", "TransactionalId"]


class UserInfo(msgspec.Struct):
    name: str
    mechanisms: list[str]


class UserList(msgspec.Struct):
    users: list[UserInfo]


class NewUser(msgspec.Struct):
    """A user with a password, or a new password for one that is there."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    password: Annotated[str, Meta(min_length=8, max_length=1000)]
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"


class Rule(msgspec.Struct):
    """Who may or may not do what. `prefix` rules are about all names that begin so."""

    principal: Annotated[str, Meta(pattern="^[A-Za-z]+:.+$")]
    operation: str
    resource: ResourceName
    name: str
    permission: Literal["Allow", "Deny"] = "Allow"
    host: str = "*"
    prefix: bool = False


class RuleList(msgspec.Struct):
    acls: list[Rule]


class WhoQuery(msgspec.Struct):
    """`resource` is KIND:NAME, such as topic:orders; `operation` such as Read."""

    resource: str
    operation: str = "Read"


class Verdict(msgspec.Struct):
    principal: str
    host: str
    rule: str


class Who(msgspec.Struct):
    allowed: list[Verdict]
    denied: list[Verdict]


class AuditQuery(msgspec.Struct):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AuditTrail(msgspec.Struct):
    """The newest first: what was done with this console, and what brokers wrote to `topic`."""

    records: list[AuditRecord]
    topic: str


@endpoint("GET", "api/security/users")
def list_users(call: Call) -> UserList:
    """List the users that have SCRAM passwords."""
    answer = call.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
    check(answer.error_code, "users", answer.error_message)
    return UserList(
        [
            UserInfo(
                str(each.user),
                [MECHANISMS[info.mechanism] for info in each.credential_infos],
            )
            for each in answer.results
            if not each.error_code
        ]
    )


@endpoint("POST", "api/security/users", status=201)
def set_user(call: Call, asked: NewUser) -> Done:
    """Add a user, or give one a new password."""
    salt = os.urandom(24)
    salted = hashlib.pbkdf2_hmac(
        HASHES[asked.mechanism], asked.password.encode(), salt, LEAST_ITERATIONS
    )
    entry = {
        "name": asked.name, "mechanism": NUMBERS[asked.mechanism], "salt": salt,
        "iterations": LEAST_ITERATIONS, "salted_password": salted,
    }  # fmt: skip
    _alter_users(call, {"deletions": [], "upsertions": [entry]})
    call.note("set password", name=asked.name, mechanism=asked.mechanism)
    return Done()


@endpoint("DELETE", "api/security/users/{name:path}")
def delete_user(call: Call) -> Done:
    """Delete a user's passwords."""
    name = call.path["name"]
    answer = call.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": name}]})
    check(answer.error_code, "users", answer.error_message)
    (told,) = answer.results
    check(told.error_code, f"user {name!r}", told.error_message)
    for info in told.credential_infos:
        deletion = {"name": name, "mechanism": info.mechanism}
        _alter_users(call, {"deletions": [deletion], "upsertions": []})
    call.note("deleted user", name=name)
    return Done()


def _alter_users(call: Call, values: dict[str, Any]) -> None:
    for each in call.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, values).results:
        check(each.error_code, f"user {each.user!r}", each.error_message)


@endpoint("GET", "api/security/acls")
def list_acls(call: Call) -> RuleList:
    """List all rules of access."""
    return RuleList(_rules(call, Resource.ANY, None, PatternType.ANY))


@endpoint("POST", "api/security/acls", status=201)
def add_acl(call: Call, asked: Rule) -> Done:
    """Add a rule."""
    kind = _RESOURCES[asked.resource]
    name = CLUSTER_NAME if kind == Resource.CLUSTER else asked.name
    creation = {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": PatternType.PREFIXED if asked.prefix else PatternType.LITERAL,
        "principal": asked.principal,
        "host": asked.host,
        "operation": _operation(asked.operation, kind),
        "permission_type": _PERMISSIONS[asked.permission],
    }
    (told,) = call.ask(Api.CREATE_ACLS, {"creations": [creation]}).results
    check(told.error_code, "the rule", told.error_message)
    call.note("added acl", **msgspec.to_builtins(asked))
    return Done()


@endpoint("DELETE", "api/security/acls")
def delete_acl(call: Call, asked: Rule) -> Done:
    """Delete the rule that is exactly this one."""
    kind = _RESOURCES[asked.resource]
    wanted = {
        "resource_type_filter": kind,
        "resource_name_filter": CLUSTER_NAME if kind == Resource.CLUSTER else asked.name,
        "pattern_type_filter": PatternType.PREFIXED if asked.prefix else PatternType.LITERAL,
        "principal_filter": asked.principal,
        "host_filter": asked.host,
        "operation": _operation(asked.operation, kind),
        "permission_type": _PERMISSIONS[asked.permission],
    }
    (told,) = call.ask(Api.DELETE_ACLS, {"filters": [wanted]}).filter_results
    check(told.error_code, "the rule", told.error_message)
    if not told.matching_acls:
        raise not_found("rule like this")
    call.note("deleted acl", **msgspec.to_builtins(asked))
    return Done()


@endpoint("GET", "api/security/who")
def who_may(call: Call, asked: WhoQuery) -> Who:
    """Say who may do something, and by which rule."""
    word, _, name = asked.resource.partition(":")
    kinds = {each.lower(): number for each, number in _RESOURCES.items()}
    kind = kinds.get(word.lower())
    if kind is None or (not name and kind != Resource.CLUSTER):
        raise invalid(f"{asked.resource!r} is not KIND:NAME, such as topic:orders")
    name = CLUSTER_NAME if kind == Resource.CLUSTER else name
    operation = _operation(asked.operation, kind)
    found = _rules(call, kind, name, PatternType.MATCH)
    rules: dict[ResourcePattern, list[Acl]] = {}
    for each in found:
        pattern_type = PatternType.PREFIXED if each.prefix else PatternType.LITERAL
        pattern = ResourcePattern(_RESOURCES[each.resource], each.name, pattern_type)
        rules.setdefault(pattern, []).append(
            Acl(
                each.principal,
                each.host,
                _OPERATIONS[each.operation],
                _PERMISSIONS[each.permission],
            )
        )
    users, everyone = _authorizer_settings(call)
    authorizer = StandardAuthorizer(
        {key: tuple(value) for key, value in rules.items()}, users, allow_if_no_rules=everyone
    )
    asked_about = {(each.principal, each.host) for each in found}
    asked_about |= {(user, "*") for user in users}
    allowed: list[Verdict] = []
    denied: list[Verdict] = []
    for principal, host in sorted(asked_about):
        word, _, who = principal.partition(":")
        decision = authorizer.decide(Principal(word, who), host, operation, kind, name)
        verdict = Verdict(principal, host, decision.rule)
        (allowed if decision.allowed else denied).append(verdict)
    return Who(allowed, denied)


def _authorizer_settings(call: Call) -> tuple[frozenset[str], bool]:
    """Return super.users and allow.everyone.if.no.acl.found, as far as we may know."""
    values = broker_settings(call.cluster, ["super.users", "allow.everyone.if.no.acl.found"])
    users = (values.get("super.users") or "").split(";")
    everyone = values.get("allow.everyone.if.no.acl.found") == "true"
    return frozenset(each.strip() for each in users if each.strip()), everyone


@endpoint("GET", "api/security/audit")
def get_audit(call: Call, asked: AuditQuery) -> AuditTrail:
    """Return what was changed with this console, and what brokers refused, the newest first."""
    topic = (broker_settings(call.cluster, ["audit.topic"]).get("audit.topic") or "").strip()
    records: list[AuditRecord] = []
    if topic:
        records = broker_records(call.cluster, topic, asked.limit)
    # What people do is for those who may see the cluster's rights, not for everybody.
    if not call.is_own:
        _rules(call, Resource.CLUSTER, CLUSTER_NAME, PatternType.MATCH)
    own = call.console.audit.last(asked.limit)
    written = {(each.at_ms, each.user, each.action) for each in records}
    records += [each for each in own if (each.at_ms, each.user, each.action) not in written]
    records.sort(key=lambda each: each.at_ms, reverse=True)
    return AuditTrail(records[: asked.limit], topic)


def _rules(call: Call, kind: Resource, name: str | None, pattern: PatternType) -> list[Rule]:
    values = {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    answer = call.ask(Api.DESCRIBE_ACLS, values)
    check(answer.error_code, "rules of access", answer.error_message)
    known = {number: word for word, number in _RESOURCES.items()}
    found: list[Rule] = []
    for each in answer.resources:
        if each.resource_type not in known:
            continue
        for acl in each.acls:
            found.append(
                msgspec.convert(
                    {
                        "principal": str(acl.principal),
                        "operation": in_words(Operation(acl.operation)),
                        "resource": known[Resource(each.resource_type)],
                        "name": str(each.resource_name),
                        "permission": in_words(Permission(acl.permission_type)),
                        "host": str(acl.host),
                        "prefix": each.pattern_type == PatternType.PREFIXED,
                    },
                    Rule,
                )
            )
    return found


def _operation(word: str, kind: Resource) -> Operation:
    wanted = word.replace("_", "").replace("-", "").lower()
    known = (*SUPPORTED.get(kind, ()), Operation.ALL)
    for each in known:
        if in_words(each).lower() == wanted:
            return each
    raise ApiError(
        422, "invalid", f"{in_words(kind)} has no operation {word!r}",
        f"one of {', '.join(map(in_words, known))}",
    )  # fmt: skip
