"""Kafka's rules: each by itself, and all against a plain reading of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.broker.security import standard_authorizer
from moldau.broker.security.principal import ANONYMOUS, Principal
from moldau.broker.security.standard_authorizer import StandardAuthorizer
from moldau.cluster.state.access import Acl, ResourcePattern
from moldau.wire.acls import Operation, PatternType, Permission, Resource
from moldau.wire.apis import Api

Rules = dict[ResourcePattern, tuple[Acl, ...]]

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HERE, THERE = "10.0.0.1", "10.0.0.2"
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
TOPIC = Resource.TOPIC
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def rules(*given: tuple[str, PatternType, str, str, Operation, Permission]) -> Rules:
    found: Rules = {}
    for name, pattern, principal, host, operation, permission in given:
        resource = ResourcePattern(TOPIC, name, pattern)
        found[resource] = (
            *found.get(resource, ()),
            Acl(principal, host, int(operation), int(permission)),
        )
    return found


def may(
    given: Rules,
    operation: Operation = READ,
    name: str = "orders",
    who: Principal = ALICE,
    host: str = HERE,
    allow_if_no_rules: bool = False,
) -> bool:
    authorizer = StandardAuthorizer(
        given, frozenset({"User:root"}), allow_if_no_rules=allow_if_no_rules
    )
    return authorizer.allows(who, host, operation, TOPIC, name)


ORDERS = ("orders", LITERAL, "User:alice", "*", READ, ALLOW)


def test_nobody_may_do_anything_without_a_rule_but_super_users() -> None:
    assert not may({})
    assert may({}, who=Principal("User", "root"))
    assert may({}, allow_if_no_rules=True)
    assert not may({}, who=ANONYMOUS)


def test_a_rule_grants_what_it_names_to_whom_it_names() -> None:
    granted = rules(ORDERS)
    assert may(granted)
    assert not may(granted, WRITE)
    assert not may(granted, name="orders2")
    assert not may(granted, who=BOB)
    # There are rules about the resource, so that the default does not count.
    assert not may(granted, who=BOB, allow_if_no_rules=True)
    assert may(granted, name="others", who=BOB, allow_if_no_rules=True)


@pytest.mark.parametrize(
    "denied",
    [
        ("orders", LITERAL, "User:alice", "*", READ, DENY),
        ("ord", PREFIXED, "User:alice", "*", READ, DENY),
        ("*", LITERAL, "User:*", "*", READ, DENY),
        ("orders", LITERAL, "User:*", HERE, Operation.ALL, DENY),
    ],
)
def test_a_deny_wins_whatever_else_matches(
    denied: tuple[str, PatternType, str, str, Operation, Permission],
) -> None:
    assert may(rules(ORDERS))
    assert not may(rules(ORDERS, denied))
    assert not may(rules(denied, ORDERS))
    assert may(rules(denied), who=Principal("User", "root"))


def test_prefixes_wildcards_hosts_and_everybody() -> None:
    assert may(rules(("ord", PREFIXED, "User:alice", "*", READ, ALLOW)))
    assert not may(rules(("ord", LITERAL, "User:alice", "*", READ, ALLOW)))
    assert not may(rules(("orders2", PREFIXED, "User:alice", "*", READ, ALLOW)))
    assert may(rules(("*", LITERAL, "User:alice", "*", READ, ALLOW)))
    # As a prefix a star is a letter as any other.
    assert not may(rules(("*", PREFIXED, "User:alice", "*", READ, ALLOW)))
    assert may(rules(("orders", LITERAL, "User:*", "*", READ, ALLOW)), who=BOB)
    only_here = rules(("orders", LITERAL, "User:alice", HERE, READ, ALLOW))
    assert may(only_here)
    assert not may(only_here, host=THERE)
    long = rules(("orders", LITERAL, "User:alice", "2001:db8:0:0:0:0:0:1", READ, ALLOW))
    assert may(long, host="2001:db8::1")


@pytest.mark.parametrize(
    "operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL, DESCRIBE]
)
def test_an_allow_implies_describe_and_a_deny_does_not(operation: Operation) -> None:
    granted = rules(("orders", LITERAL, "User:alice", "*", operation, ALLOW))
    assert may(granted, DESCRIBE)
    denied = rules(
        ("orders", LITERAL, "User:alice", "*", operation, DENY),
        ("orders", LITERAL, "User:alice", "*", DESCRIBE, ALLOW),
    )
    assert may(denied, DESCRIBE) == (operation not in (DESCRIBE, Operation.ALL))


def test_altering_settings_implies_describing_them() -> None:
    granted = rules(("orders", LITERAL, "User:alice", "*", Operation.ALTER_CONFIGS, ALLOW))
    assert may(granted, Operation.DESCRIBE_CONFIGS)
    assert not may(granted, DESCRIBE)


def test_what_was_decided_is_forgotten_when_the_rules_change() -> None:
    given = rules(ORDERS)
    authorizer = StandardAuthorizer(given, frozenset())
    assert authorizer.allows(ALICE, HERE, READ, TOPIC, "orders")
    assert not authorizer.allows(BOB, HERE, READ, TOPIC, "orders")
    given.clear()
    authorizer.rules_changed()
    assert not authorizer.allows(ALICE, HERE, READ, TOPIC, "orders")


def test_no_more_decisions_are_remembered_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standard_authorizer, "_MOST_REMEMBERED", 10)
    authorizer = StandardAuthorizer(rules(ORDERS), frozenset())
    for number in range(35):
        host = f"2001:db8::{number:x}"
        assert authorizer.allows(ALICE, host, READ, TOPIC, "orders")
        assert authorizer.allows_any(ALICE, host, READ, TOPIC, Api.INIT_PRODUCER_ID)
    assert 0 < len(authorizer._decisions) <= 10
    assert 0 < len(authorizer._any) <= 10


def test_a_decision_is_remembered_for_who_asked_from_where_and_nobody_else() -> None:
    authorizer = StandardAuthorizer(
        rules(("orders", LITERAL, "User:alice", HERE, READ, ALLOW)), frozenset()
    )
    for _ in range(2):
        assert authorizer.allows(ALICE, HERE, READ, TOPIC, "orders")
        assert not authorizer.allows(ALICE, THERE, READ, TOPIC, "orders")
        assert not authorizer.allows(BOB, HERE, READ, TOPIC, "orders")
        assert not authorizer.allows(ALICE, HERE, WRITE, TOPIC, "orders")
        assert not authorizer.allows(ALICE, HERE, READ, Resource.GROUP, "orders")
        # A kind and a name that read the same as another's.
        assert not authorizer.allows(Principal("User:alice", ""), HERE, READ, TOPIC, "orders")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), False),
        ((("a", LITERAL, "User:alice", "*", WRITE, ALLOW),), True),
        ((("a", LITERAL, "User:bob", "*", WRITE, ALLOW),), False),
        ((("a", LITERAL, "User:alice", THERE, WRITE, ALLOW),), False),
        ((("*", LITERAL, "User:*", "*", Operation.ALL, ALLOW),), True),
        (
            (
                ("a", LITERAL, "User:alice", "*", WRITE, ALLOW),
                ("a", LITERAL, "User:alice", "*", WRITE, DENY),
            ),
            False,
        ),
        (
            (
                ("abc", PREFIXED, "User:alice", "*", WRITE, ALLOW),
                ("ab", PREFIXED, "User:alice", "*", WRITE, DENY),
            ),
            False,
        ),
        (
            (
                ("ab", PREFIXED, "User:alice", "*", WRITE, ALLOW),
                ("abc", PREFIXED, "User:alice", "*", WRITE, DENY),
            ),
            True,
        ),
        (
            (
                ("a", LITERAL, "User:alice", "*", WRITE, ALLOW),
                ("*", LITERAL, "User:alice", "*", WRITE, DENY),
            ),
            False,
        ),
    ],
)
def test_whether_somebody_may_do_it_to_any_topic(
    given: tuple[tuple[str, PatternType, str, str, Operation, Permission], ...], expected: bool
) -> None:
    authorizer = StandardAuthorizer(rules(*given), frozenset({"User:root"}))
    assert authorizer.allows_any(ALICE, HERE, WRITE, TOPIC, 22) == expected
    assert authorizer.allows_any(Principal("User", "root"), HERE, WRITE, TOPIC, 22)


# A plain reading of the rules: every rule is looked at, whatever index finds it.

_names = st.sampled_from(["", "a", "ab", "abc", "b", "*"])
_operations = st.sampled_from(list(Operation)[2:])
_rules = st.lists(
    st.tuples(
        _names,
        st.sampled_from([LITERAL, PREFIXED]),
        st.sampled_from(["User:alice", "User:bob", "User:*"]),
        st.sampled_from(["*", HERE, THERE]),
        _operations,
        st.sampled_from([ALLOW, DENY]),
    ),
    max_size=8,
)


def _plainly(given: Rules, operation: Operation, name: str, who: str, host: str) -> bool:
    of_resource = [
        acl
        for pattern, acls in given.items()
        if (
            name.startswith(pattern.name)
            if pattern.pattern == PREFIXED
            else pattern.name in (name, "*")
        )
        for acl in acls
    ]
    implied = {
        DESCRIBE: {READ, WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }.get(operation, set())
    matching = [
        acl.permission
        for acl in of_resource
        if acl.principal in (who, "User:*")
        and acl.host in (host, "*")
        and (
            acl.operation in (operation, Operation.ALL)
            or (acl.permission == ALLOW and acl.operation in implied)
        )
    ]
    return bool(matching) and DENY not in matching


@settings(max_examples=300)
@given(_rules, _operations, st.sampled_from(["a", "ab", "abcd", "b", "c", "*"]))
def test_it_decides_as_a_plain_reading_does(
    given: list[tuple[str, PatternType, str, str, Operation, Permission]],
    operation: Operation,
    name: str,
) -> None:
    found = rules(*given)
    assert may(found, operation, name) == _plainly(found, operation, name, "User:alice", HERE)


def test_nothing_is_kept_of_long_names_that_somebody_asks_about() -> None:
    authorizer = StandardAuthorizer(
        rules(("x", PREFIXED, "User:alice", "*", READ, ALLOW)), frozenset()
    )
    for number in range(100):
        name = f"x{number}" + "y" * 30_000
        assert authorizer.allows(ALICE, HERE, READ, TOPIC, name)
        assert not authorizer.allows(BOB, HERE, READ, TOPIC, name)
    assert not authorizer._decisions
