"""The standard authorizer: Kafka's rules, on the access rules that the cluster agrees on.

    super users     may do everything
    a deny          that matches wins, whatever else matches
    an allow        that matches grants; Read, Write, Delete and Alter grant Describe as well, and
                    AlterConfigs grants DescribeConfigs
    rules           of the resource, but none that matches: refused
    no rules        of the resource: as allow.everyone.if.no.acl.found says

A rule is one of a resource if its pattern is the resource's name, a prefix of it, or the wildcard.
It matches who it names or everybody (User:*), from the host that it names or from all (*).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from ipaddress import ip_address
from typing import NamedTuple

from moldau.broker.security.audit import Audit
from moldau.broker.security.authorizer import NO_API
from moldau.broker.security.principal import Principal
from moldau.cluster.state.access import CLOSED, Acl, ResourcePattern
from moldau.wire.acls import (
    ANYBODY,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    Resource,
    in_words,
)

# Decisions that are remembered; all are forgotten when there are more. Names are chosen by who
# asks: of long ones nothing is kept.
_MOST_REMEMBERED = 50_000
_LONGEST_REMEMBERED = 255

# The operations whose allow grants another as well.
_GRANTED_BY = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}

Rules = Mapping[ResourcePattern, tuple[Acl, ...]]
Question = tuple[Principal, str, int, int, str]


class Decision(NamedTuple):
    """What was decided, and which rule says so."""

    allowed: bool
    rule: str


class Index:
    """The rules of a cluster, to be found by the resource that they are about."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        # How long the prefixes of each kind are.
        self._lengths: dict[int, set[int]] = {}
        for resource in rules:
            if resource.pattern == PatternType.PREFIXED:
                self._lengths.setdefault(resource.kind, set()).add(len(resource.name))

    def of(self, kind: int, name: str) -> Iterator[tuple[ResourcePattern, Acl]]:
        """Return the rules of one resource."""
        patterns = [ResourcePattern(kind, name, PatternType.LITERAL)]
        patterns += (
            ResourcePattern(kind, name[:length], PatternType.PREFIXED)
            for length in sorted(self._lengths.get(kind, ()), reverse=True)
            if length <= len(name)
        )
        if name != WILDCARD:
            patterns.append(ResourcePattern(kind, WILDCARD, PatternType.LITERAL))
        for pattern in patterns:
            for acl in self._rules.get(pattern, ()):
                yield pattern, acl

    def of_kind(self, kind: int) -> Iterator[tuple[ResourcePattern, Acl]]:
        """Return all rules about resources of a kind."""
        for resource, acls in self._rules.items():
            if resource.kind == kind:
                for acl in acls:
                    yield resource, acl


class StandardAuthorizer:
    """An `Authorizer` by Kafka's rules. Event loop only.

    Decisions are remembered until `rules_changed` is called.
    """

    def __init__(
        self,
        rules: Rules,
        super_users: frozenset[str],
        *,
        allow_if_no_rules: bool = False,
        audit: Audit | None = None,
    ) -> None:
        self._given = rules
        self._super_users = super_users
        self._default = (
            Decision(True, "allow.everyone.if.no.acl.found")
            if allow_if_no_rules
            else Decision(False, "no rule for the resource")
        )
        self._audit = audit
        self.rules = Index(rules)
        self._decisions: dict[Question, Decision] = {}
        self._any: dict[tuple[Principal, str, int, int], bool] = {}

    @property
    def may_remember(self) -> bool:
        return self._audit is None or not self._audit.with_admissions

    def rules_changed(self) -> None:
        """Take the rules in anew, and forget what was decided by the old ones."""
        self.rules = Index(self._given)
        self._decisions.clear()
        self._any.clear()

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        name: str,
        api: int = NO_API,
        *,
        quietly: bool = False,
    ) -> bool:
        question = (principal, host, operation, resource, name)
        decision = self._decisions.get(question)
        if decision is None:
            decision = self.decide(principal, host, operation, resource, name)
            if len(name) <= _LONGEST_REMEMBERED:
                if len(self._decisions) >= _MOST_REMEMBERED:
                    self._decisions.clear()
                self._decisions[question] = decision
        if self._audit is not None and not quietly:
            self._audit.note(question, decision.allowed, decision.rule, api)
        return decision.allowed

    def decide(
        self, principal: Principal, host: str, operation: int, resource: int, name: str
    ) -> Decision:
        """Return the decision on one question, with the rule that it is based on."""
        who = str(principal)
        if who in self._super_users:
            return Decision(True, "super.users")
        has_rules = False
        granted: Decision | None = None
        for pattern, acl in self.rules.of(resource, name):
            has_rules = True
            if not _concerns(acl, who, host) or not _covers(acl, operation):
                continue
            if acl.permission == Permission.DENY:
                return Decision(False, described(pattern, acl))
            if granted is None:
                granted = Decision(True, described(pattern, acl))
        if granted is not None:
            return granted
        return Decision(False, "no matching rule") if has_rules else self._default

    def allows_any(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        api: int,
        *,
        quietly: bool = False,
    ) -> bool:
        question = (principal, host, operation, resource)
        found = self._any.get(question)
        if found is None:
            if len(self._any) >= _MOST_REMEMBERED:
                # Addresses are as many as a network has.
                self._any.clear()
            found = self._any[question] = self._decide_any(principal, host, operation, resource)
        if self._audit is not None and not quietly:
            rule = "a rule for some resource" if found else "no rule for any resource"
            self._audit.note((*question, "(any)"), found, rule, api)
        return found

    def _decide_any(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        """As Kafka decides it, name by name: a name that nobody has stands for all others."""
        if self.decide(principal, host, operation, resource, "hardcode").allowed:
            return True
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for pattern, acl in self.rules.of_kind(resource):
            if not _concerns(acl, str(principal), host):
                continue
            if acl.operation not in (operation, Operation.ALL):
                continue
            if acl.permission == Permission.DENY:
                denied.add(pattern)
            else:
                allowed.append(pattern)
        every = ResourcePattern(resource, WILDCARD, PatternType.LITERAL)
        if every in denied:
            return False
        return every in allowed or any(not _is_dominated(each, denied) for each in allowed)


def _is_dominated(pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Return whether everything that a pattern allows is denied."""
    if pattern.pattern == PatternType.LITERAL and pattern in denied:
        return True
    return any(
        ResourcePattern(pattern.kind, pattern.name[:end], PatternType.PREFIXED) in denied
        for end in range(1, len(pattern.name) + 1)
    )


def _concerns(acl: Acl, who: str, host: str) -> bool:
    return acl.principal in (who, ANYBODY) and (
        acl.host in (host, WILDCARD) or _shortened(acl.host) == host
    )


@cache
def _shortened(host: str) -> str:
    """Return an IPv6 address as connections have it: Kafka's tools write all of its zeros."""
    try:
        return str(ip_address(host)) if ":" in host else host
    except ValueError:
        return host


def _covers(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    # Only what is granted implies more: a deny of Read leaves Describe.
    return acl.permission == Permission.ALLOW and acl.operation in _GRANTED_BY.get(
        Operation(operation), ()
    )


def described(pattern: ResourcePattern, acl: Acl) -> str:
    """Return a rule as people read it: `Allow User:alice Read on Topic orders* from any host`."""
    name = pattern.name
    if pattern.pattern == PatternType.PREFIXED:
        name += "*"
    if acl is CLOSED:
        kind = in_words(Resource(pattern.kind))
        return f"the rules for {kind} {name} are damaged and let nobody in"
    host = "any host" if acl.host == WILDCARD else acl.host
    return (
        f"{in_words(Permission(acl.permission))} {acl.principal} "
        f"{in_words(Operation(acl.operation))} on {in_words(Resource(pattern.kind))} {name} "
        f"from {host}"
    )
