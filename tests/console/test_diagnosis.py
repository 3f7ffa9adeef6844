"""Diagnoses: why a group is behind, by what is known of it."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.console.diagnosis import GroupFacts, PartitionFacts, diagnose

FACTS: dict[str, Any] = {"lag": 10, "lag_s": 120.0, "member": "m"}


def reasons(
    *partitions: dict[str, Any],
    members: int = 1,
    state: str = "stable",
    rebalances: list[tuple[int, str]] | None = None,
) -> str:
    facts = {("t", i): PartitionFacts(**(FACTS | each)) for i, each in enumerate(partitions)}
    group = GroupFacts("g", state, members, facts, rebalances or [], 1_000_000)
    _, found = diagnose(group)
    return "; ".join(each.what for each in found)


def test_a_group_without_lag_is_not_behind() -> None:
    group = GroupFacts("g", "stable", 1, {("t", 0): PartitionFacts(0, 0.0, "m")})
    assert diagnose(group) == ("g is not behind", [])


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        ("no members", {"members": 0, "state": "empty"}),
        ("rebalancing now", {"state": "preparing_rebalance"}),
        ("3 times", {"rebalances": [(999_000, "b left"), (998_000, "a"), (997_000, "a")]}),
        ("2 of its 3 members have no partition", {"members": 3}),
    ],
)
def test_the_group_itself_can_be_the_reason(expected: str, given: dict[str, Any]) -> None:
    assert expected in reasons({}, **given)


@pytest.mark.parametrize(
    ("expected", "partitions"),
    [
        ("nobody reads t-1", [{}, {"member": None}]),
        ("transaction of tx-1 hides", [{"committed": 5, "held_at": 5, "held_by": "tx-1"}]),
        ("nothing was committed in t-0", [{"read_rate": 0.0}]),
        ("most of the lag is in t-0", [{"lag": 1000}, {"lag": 1}, {"lag": 1}]),
        ("producers write faster than its members read", [{"lag_growth": 5.0, "read_rate": 2.0}]),
        ("catching up", [{"lag_growth": -5.0, "read_rate": 9.0}]),
        ("nothing seems to hold them up", [{}]),
    ],
)
def test_partitions_can_be_the_reason(expected: str, partitions: list[dict[str, Any]]) -> None:
    assert expected in reasons(*partitions)


def test_a_transaction_further_on_is_no_reason() -> None:
    assert "transaction" not in reasons({"committed": 5, "held_at": 9})


def test_members_of_a_share_group_share_every_partition() -> None:
    facts = {("t", 0): PartitionFacts(7, None, "all of them")}
    summary, found = diagnose(GroupFacts("g", "stable", 3, facts, is_share=True))
    assert summary == "g is 7 messages behind"
    assert [each.what for each in found] == [
        "its members are reading, and nothing seems to hold them up"
    ]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (0, ["it has no members, so nobody reads"]),
        (2, ["nothing was finished in t-0 for two minutes"]),
    ],
)
def test_a_share_group_stands_still_only_if_somebody_is_in_it(
    members: int, expected: list[str]
) -> None:
    facts = {("t", 0): PartitionFacts(7, 90.0, "all of them", read_rate=0.0)}
    _, found = diagnose(GroupFacts("g", "stable", members, facts, is_share=True))
    assert [each.what for each in found] == expected
