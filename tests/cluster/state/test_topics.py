from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.state.topics import InvalidTopicName, check_topic_name, collision_key

LEGAL = string.ascii_letters + string.digits + "._-"


@pytest.mark.parametrize("name", ["a", "orders", "a.b", "a_b", "A-1", "...", "__x", "x" * 249])
def test_ordinary_names_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a b", "characters other than ASCII alphanumerics"),
        ("a/b", "characters other than"),
        ("../etc", "characters other than"),
        ("café", "characters other than"),
        ("a\n", "characters other than"),
        ("a\0", "characters other than"),
        ("٣", "characters other than"),
    ],
)
def test_a_bad_name_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopicName, match="Topic name is invalid: ") as raised:
        check_topic_name(name)
    assert reason in raised.value.reason


@given(st.text(max_size=260))
def test_only_legal_names_pass(name: str) -> None:
    legal = 0 < len(name) <= 249 and name not in (".", "..") and set(name) <= set(LEGAL)
    try:
        check_topic_name(name)
    except InvalidTopicName:
        assert not legal
    else:
        assert legal


@given(st.text(LEGAL, min_size=1, max_size=30), st.text(LEGAL, min_size=1, max_size=30))
def test_names_collide_when_they_differ_only_in_dots_and_underscores(a: str, b: str) -> None:
    same = len(a) == len(b) and all(
        x == y or {x, y} == {".", "_"} for x, y in zip(a, b, strict=True)
    )
    assert (collision_key(a) == collision_key(b)) == same
