"""Decisions on access: rules created and deleted, quotas and passwords altered.

Each takes what the cluster agrees on and what is asked for, and returns the entries to commit with
one outcome per question: None where it is granted, or the ClusterError that it is refused with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from moldau.cluster.errors import ClusterError
from moldau.cluster.state.access import (
    Access,
    AccessChange,
    Acl,
    AclsChanged,
    QuotaEntity,
    QuotasChanged,
    ResourcePattern,
    ScramChanged,
    ScramCredential,
)
from moldau.wire.acls import WILDCARD, Operation, PatternType, Permission, Resource
from moldau.wire.errors import Error
from moldau.wire.scram import LEAST_ITERATIONS

Outcome = ClusterError | None
Binding = tuple[ResourcePattern, Acl]


class AclFilter(msgspec.Struct, frozen=True):
    """Which rules are meant. None, and ANY among numbers, means all."""

    kind: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def check(self) -> None:
        """Raise ClusterError for numbers that nobody knows."""
        if not _is_known(Resource, self.kind) or not _is_known(PatternType, self.pattern):
            raise ClusterError(Error.INVALID_REQUEST, "Unknown patternFilter.")
        if not _is_known(Operation, self.operation) or not _is_known(Permission, self.permission):
            raise ClusterError(Error.INVALID_REQUEST, "Unknown entryFilter.")

    def covers(self, resource: ResourcePattern) -> bool:
        """Return whether rules of this pattern can be meant; MATCH means those that apply to the
        resource of that name."""
        if self.kind not in (Resource.ANY, resource.kind):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, resource.pattern):
            return False
        if self.name is None or self.name == resource.name:
            return True
        if self.pattern != PatternType.MATCH:
            return False
        if resource.pattern == PatternType.PREFIXED:
            return self.name.startswith(resource.name)
        return resource.name == WILDCARD

    def matches(self, acl: Acl) -> bool:
        """Return whether this rule of a resource that it covers is meant."""
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def find(self, access: Access) -> list[Binding]:
        """Return the rules that are meant, in the order of their resources."""
        return [
            (resource, acl)
            for resource in sorted(access.acls)
            if self.covers(resource)
            for acl in access.acls[resource]
            if self.matches(acl)
        ]


def create_acls(
    access: Access, wanted: Sequence[Binding | ClusterError]
) -> tuple[list[AccessChange], list[Outcome]]:
    """Add each rule unless it is there."""
    outcomes: list[Outcome] = []
    acls: dict[ResourcePattern, set[Acl]] = {}
    for each in wanted:
        if isinstance(each, ClusterError):
            outcomes.append(each)
            continue
        resource, acl = each
        if (problem := _damage(access, resource)) is not None:
            outcomes.append(problem)
            continue
        acls.setdefault(resource, set(access.acls.get(resource, ()))).add(acl)
        outcomes.append(None)
    return _acl_changes(access, acls), outcomes


def delete_acls(
    access: Access, filters: Sequence[AclFilter | ClusterError]
) -> tuple[list[AccessChange], list[list[Binding] | ClusterError]]:
    """Delete the rules that any of the filters means; each outcome has those that its filter
    meant."""
    outcomes: list[list[Binding] | ClusterError] = []
    acls: dict[ResourcePattern, set[Acl]] = {}
    for each in filters:
        try:
            if isinstance(each, ClusterError):
                raise each
            each.check()
        except ClusterError as error:
            outcomes.append(error)
            continue
        found = each.find(access)
        problems = (_damage(access, resource) for resource, _ in found)
        if (problem := next(filter(None, problems), None)) is not None:
            outcomes.append(problem)
            continue
        for resource, acl in found:
            acls.setdefault(resource, set(access.acls[resource])).discard(acl)
        outcomes.append(found)
    return _acl_changes(access, acls), outcomes


def _damage(access: Access, resource: ResourcePattern) -> ClusterError | None:
    """Return why nobody can change the rules of a resource, if they cannot be read.

    New rules in their place would forget what the old ones refused."""
    problem = access.damaged.get(AclsChanged(resource).key)
    if problem is None:
        return None
    return ClusterError(
        Error.UNKNOWN_SERVER_ERROR,
        f"{problem}. Only super users can use the resources that its rules cover until you repair "
        "the node, or delete it and add its rules again",
    )


def _acl_changes(access: Access, acls: Mapping[ResourcePattern, set[Acl]]) -> list[AccessChange]:
    return [
        AclsChanged(resource, tuple(sorted(kept)))
        for resource, kept in acls.items()
        if kept != set(access.acls.get(resource, ()))
    ]


class QuotaChange(msgspec.Struct, frozen=True):
    """Limits to set on an entity; None removes one."""

    entity: QuotaEntity
    limits: Mapping[str, float | None]


def alter_quotas(
    access: Access, wanted: Sequence[QuotaChange | ClusterError]
) -> tuple[list[AccessChange], list[Outcome]]:
    """Set and remove limits; the others of the same entity stay."""
    outcomes: list[Outcome] = []
    altered: dict[QuotaEntity, dict[str, float]] = {}
    for each in wanted:
        if isinstance(each, ClusterError):
            outcomes.append(each)
            continue
        # Those that cannot be read are replaced.
        is_damaged = QuotasChanged(each.entity).key in access.damaged
        known = {} if is_damaged else access.quotas.get(each.entity, {})
        limits = altered.setdefault(each.entity, dict(known))
        for name, value in each.limits.items():
            if value is None:
                limits.pop(name, None)
            else:
                limits[name] = value
        outcomes.append(None)
    return [
        QuotasChanged(entity, limits)
        for entity, limits in altered.items()
        if limits != access.quotas.get(entity, {})
    ], outcomes


class CredentialChange(msgspec.Struct, frozen=True):
    """A user's password for a mechanism to set, or (None) to delete."""

    user: str
    mechanism: str
    credential: ScramCredential | None


def alter_scram(
    access: Access,
    wanted: Sequence[CredentialChange],
    refused: Mapping[str, ClusterError],
    secret: bytes = b"",
) -> tuple[list[AccessChange], dict[str, Outcome]]:
    """Set and delete passwords, at most one of each user.

    With the first one the cluster gets the `secret` of its salts.
    """
    outcomes: dict[str, Outcome] = dict(refused)
    counts = Counter(each.user for each in wanted)
    for each in wanted:
        if each.user in outcomes:
            continue
        if counts[each.user] > 1:
            outcomes[each.user] = ClusterError(
                Error.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        elif (
            each.credential is None
            and each.mechanism not in access.scram.get(each.user, {})
            and ScramChanged(each.user).key not in access.damaged
        ):
            outcomes[each.user] = ClusterError(
                Error.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    altered: dict[str, dict[str, ScramCredential]] = {}
    for each in wanted:
        if outcomes.get(each.user) is not None:
            continue
        outcomes[each.user] = None
        own = altered.setdefault(each.user, dict(access.scram.get(each.user, {})))
        if each.credential is None:
            own.pop(each.mechanism, None)
        else:
            own[each.mechanism] = each.credential
    changes: list[AccessChange] = [ScramChanged(user, own) for user, own in altered.items()]
    if changes and secret and not access.secret:
        kept = ScramCredential(b"", secret, b"", LEAST_ITERATIONS)
        changes.append(ScramChanged("", {"SCRAM-SHA-512": kept}))
    return changes, outcomes


def checked_binding(resource: ResourcePattern, acl: Acl) -> Binding:
    """Return a rule that can be created; ClusterError if it cannot, in Kafka's words."""

    def refuse(reason: str) -> ClusterError:
        return ClusterError(Error.INVALID_REQUEST, reason)

    if not _is_known(Resource, resource.kind) or resource.kind == Resource.ANY:
        raise refuse(f"Invalid resourceType {_named(Resource, resource.kind)}")
    if resource.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise refuse(f"Invalid patternType {_named(PatternType, resource.pattern)}")
    if not _is_known(Operation, acl.operation) or acl.operation == Operation.ANY:
        raise refuse(f"Invalid operation {_named(Operation, acl.operation)}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        raise refuse(f"Invalid permissionType {_named(Permission, acl.permission)}")
    if ":" not in acl.principal:
        raise refuse(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    return resource, acl


def _is_known(kind: type[Operation | Resource | PatternType | Permission], number: int) -> bool:
    return number != 0 and number in set(kind)


def _named(kind: type[Operation | Resource | PatternType | Permission], number: int) -> str:
    return kind(number).name if number in set(kind) else "UNKNOWN"
