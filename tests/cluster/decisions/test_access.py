"""Decisions on rules, quotas and passwords, on values alone."""

from __future__ import annotations

import pytest

from moldau.cluster.decisions.access import (
    AclFilter,
    CredentialChange,
    QuotaChange,
    alter_quotas,
    alter_scram,
    checked_binding,
    create_acls,
    delete_acls,
)
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.access import (
    Access,
    AccessChange,
    Acl,
    ResourcePattern,
    ScramCredential,
)
from moldau.wire.errors import Error

TOPIC, GROUP = 2, 3
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3

ORDERS = ResourcePattern(TOPIC, "orders", LITERAL)
ORD = ResourcePattern(TOPIC, "ord", PREFIXED)
ALL = ResourcePattern(TOPIC, "*", LITERAL)
ALICE = Acl("User:alice", "*", READ, ALLOW)
BOB = Acl("User:bob", "10.0.0.1", WRITE, DENY)


def applied(access: Access, changes: list[AccessChange]) -> None:
    for change in changes:
        access.apply(change)


def with_rules() -> Access:
    access = Access()
    changes, _ = create_acls(access, [(ORDERS, ALICE), (ORD, BOB), (ALL, ALICE), (ORDERS, BOB)])
    applied(access, changes)
    return access


def test_creating_rules_keeps_those_that_are_there() -> None:
    access = with_rules()
    assert access.acls == {ORDERS: (ALICE, BOB), ORD: (BOB,), ALL: (ALICE,)}
    refused = ClusterError(Error.INVALID_REQUEST, "no")
    changes, outcomes = create_acls(access, [(ORDERS, ALICE), refused])
    assert (changes, outcomes) == ([], [None, refused])


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AclFilter(ANY, None, ANY, None, None, ANY, ANY), {ORDERS, ORD, ALL}),
        (AclFilter(TOPIC, "orders", LITERAL, None, None, ANY, ANY), {ORDERS}),
        (AclFilter(TOPIC, "orders", ANY, None, None, ANY, ANY), {ORDERS}),
        (AclFilter(TOPIC, "orders", MATCH, None, None, ANY, ANY), {ORDERS, ORD, ALL}),
        (AclFilter(TOPIC, "other", MATCH, None, None, ANY, ANY), {ALL}),
        (AclFilter(TOPIC, "ord", PREFIXED, None, None, ANY, ANY), {ORD}),
        (AclFilter(GROUP, None, ANY, None, None, ANY, ANY), set()),
        (AclFilter(ANY, None, ANY, "User:bob", None, ANY, ANY), {ORDERS, ORD}),
        (AclFilter(ANY, None, ANY, None, "10.0.0.1", ANY, ANY), {ORDERS, ORD}),
        (AclFilter(ANY, None, ANY, None, None, READ, ANY), {ORDERS, ALL}),
        (AclFilter(ANY, None, ANY, None, None, ANY, DENY), {ORDERS, ORD}),
    ],
)
def test_a_filter_finds_the_rules_that_it_means(
    wanted: AclFilter, expected: set[ResourcePattern]
) -> None:
    assert {resource for resource, _ in wanted.find(with_rules())} == expected


def test_deleting_tells_each_filter_what_it_meant() -> None:
    access = with_rules()
    bobs = AclFilter(ANY, None, ANY, "User:bob", None, ANY, ANY)
    orders = AclFilter(TOPIC, "orders", LITERAL, None, None, ANY, ANY)
    unknown = AclFilter(TOPIC, "orders", 99, None, None, ANY, ANY)
    changes, outcomes = delete_acls(access, [bobs, orders, unknown])
    assert outcomes[0] == [(ORD, BOB), (ORDERS, BOB)]
    assert outcomes[1] == [(ORDERS, ALICE), (ORDERS, BOB)]
    assert isinstance(outcomes[2], ClusterError)
    applied(access, changes)
    assert access.acls == {ALL: (ALICE,)}


@pytest.mark.parametrize(
    ("resource", "acl", "message"),
    [
        (ResourcePattern(1, "x", LITERAL), ALICE, "Invalid resourceType ANY"),
        (ResourcePattern(77, "x", LITERAL), ALICE, "Invalid resourceType UNKNOWN"),
        (ResourcePattern(TOPIC, "x", MATCH), ALICE, "Invalid patternType MATCH"),
        (ORDERS, Acl("User:a", "*", 1, ALLOW), "Invalid operation ANY"),
        (ORDERS, Acl("User:a", "*", READ, 1), "Invalid permissionType ANY"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(
    resource: ResourcePattern, acl: Acl, message: str
) -> None:
    with pytest.raises(ClusterError, match=message):
        checked_binding(resource, acl)


def test_altering_quotas_leaves_the_other_limits_of_an_entity() -> None:
    access = Access()
    entity = (("client-id", None), ("user", "alice"))
    changes, _ = alter_quotas(access, [QuotaChange(entity, {"a": 1.0, "b": 2.0})])
    applied(access, changes)
    changes, outcomes = alter_quotas(access, [QuotaChange(entity, {"a": None, "c": 3.0})])
    applied(access, changes)
    assert outcomes == [None]
    assert access.quotas == {entity: {"b": 2.0, "c": 3.0}}
    assert alter_quotas(access, [QuotaChange(entity, {"b": 2.0})])[0] == []


def test_a_users_password_is_altered_once_in_a_request() -> None:
    access = Access()
    credential = ScramCredential(b"s", b"k", b"v", 4096)
    sha256, sha512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
    alice = CredentialChange("alice", sha256, credential)
    changes, outcomes = alter_scram(access, [alice], {})
    applied(access, changes)
    assert outcomes == {"alice": None}
    twice = [CredentialChange("alice", sha512, credential), alice]
    changes, outcomes = alter_scram(access, twice, {})
    assert changes == []
    assert outcomes["alice"] is not None
    assert outcomes["alice"].error is Error.DUPLICATE_RESOURCE
    nobody = CredentialChange("bob", sha256, None)
    changes, outcomes = alter_scram(access, [nobody, CredentialChange("alice", sha256, None)], {})
    assert outcomes["bob"] is not None
    assert outcomes["bob"].error is Error.RESOURCE_NOT_FOUND
    applied(access, changes)
    assert access.scram == {}
