"""`moldau groups reset` and `delete`, against a real broker."""

from __future__ import annotations

import uuid

import pytest

from moldau.cli.reset import Kind, Move, Target, parse_target, plan
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.cli.commands.groups import (
    has_members,
    member,
    produce,
    stamped,
    take,
)
from tests.cli.conftest import QUICKLY, Run


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def committed(moldau: Run, topic: str, group: str) -> str:
    """A group that has read ten messages of each partition, written 1,000 to 100 seconds ago."""
    messages = [(partition, 1000 - 100 * n) for n in range(10) for partition in range(3)]
    moldau("produce", topic, "--json", *QUICKLY, typed=stamped(messages))
    take(moldau, topic, group, "--max", "30")
    return group


def test_a_reset_moves_a_group(moldau: Run, topic: str, committed: str) -> None:
    cases: list[tuple[tuple[str, ...], list[int]]] = [
        (("--to", "earliest"), [0, 0, 0]),
        (("--to", "4"), [4, 4, 4]),
        (("--to", "99"), [10, 10, 10]),
        (("--shift", "-3"), [7, 7, 7]),
        (("--shift", "-99"), [0, 0, 0]),
        (("--shift", "5"), [5, 5, 5]),
        (("--to", "2000-01-01"), [0, 0, 0]),
        (("--to", "2100-01-01T00:00Z"), [10, 10, 10]),
        (("--to", "2", "--topic", topic, "--partition", "1"), [10, 2, 10]),
        (("--to", "450s"), [6, 6, 6]),
        (("--to", "latest"), [10, 10, 10]),
    ]
    before = [10, 10, 10]
    for words, expected in cases:
        ended = moldau("groups", "reset", committed, *words, "--yes", "--json")
        assert ended.status == 0, ended.err
        view = moldau("groups", "describe", committed, "--json").json
        assert [partition["committed"] for partition in view["partitions"]] == expected, words
        assert ended.json["group"] == committed
        for move in ended.json["partitions"]:
            index = move["partition"]
            assert (move["before"], move["committed"]) == (before[index], expected[index])
        before = expected


def test_a_reset_shows_its_plan_and_asks(moldau: Run, topic: str, committed: str) -> None:
    def offsets() -> list[int]:
        view = moldau("groups", "describe", committed, "--json").json
        return [partition["committed"] for partition in view["partitions"]]

    refused = moldau("groups", "reset", committed, "--to", "3", typed="n\n")
    assert refused.status == 1
    heading, row, *_ = refused.out.splitlines()
    assert heading == heading_of(topic)
    assert row.split() == [topic, "0", "10", "3", "-7", "7"]
    assert f"Move 3 partitions of group {committed}? [y/N]" in refused.err
    assert "nothing was changed" in refused.err
    unanswered = moldau("groups", "reset", committed, "--to", "3")
    assert unanswered.status == 1
    assert "add --yes" in unanswered.err
    assert offsets() == [10, 10, 10]
    assert moldau("groups", "reset", committed, "--to", "3", typed="y\n").status == 0
    assert offsets() == [3, 3, 3]


def heading_of(topic: str) -> str:
    return f"{'TOPIC':{len(topic)}}  PARTITION  NOW  NEW  CHANGE  LAG THEN"


def test_a_group_can_be_given_offsets_before_it_reads(moldau: Run, topic: str, group: str) -> None:
    produce(moldau, topic, 0, 9)
    ended = moldau("groups", "reset", group, "--to", "latest", "--topic", topic, "--yes")
    assert ended.status == 0, ended.err
    assert take(moldau, topic, group, "--timeout", "0.3") == []


def test_a_group_with_members_is_neither_moved_nor_deleted(
    moldau: Run, moldau_session_broker: Broker, topic: str, group: str
) -> None:
    with member(moldau_session_broker, topic, group) as reader:
        until(lambda: has_members(moldau, group, 1))
        for words in (("reset", group, "--to", "earliest", "--topic", topic), ("delete", group)):
            ended = moldau("groups", *words, "--yes")
            assert ended.status == 1
            assert f"group {group} has 1 member: moldau-cli on 127.0.0.1" in ended.err
            assert "once the group is empty" in ended.err
        assert reader.end() == 0


def test_a_deleted_group_is_gone_and_the_messages_stay(
    moldau: Run, topic: str, committed: str
) -> None:
    refused = moldau("groups", "delete", committed, typed="no\n")
    assert refused.status == 1
    assert committed in {each["group"] for each in moldau("groups", "list", "--json").json}
    assert moldau("groups", "delete", committed, typed="yes\n").out == f"{committed}: deleted\n"
    assert committed not in {each["group"] for each in moldau("groups", "list", "--json").json}
    assert moldau("groups", "delete", committed, "--yes").status == 1
    again = moldau("groups", "delete", committed, "--yes", "--if-exists", "--json")
    assert (again.status, again.json) == (0, {"deleted": []})
    assert len(take(moldau, topic, committed, "--max", "30")) == 30


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target(Kind.EARLIEST)),
        ("latest", Target(Kind.LATEST)),
        ("17", Target(Kind.OFFSET, 17)),
        ("1970-01-01T00:00:01Z", Target(Kind.TIME, 1000)),
        ("1970-01-01T01:00:01+01:00", Target(Kind.TIME, 1000)),
        ("2h", Target(Kind.TIME, 2_800_000)),
        ("3w", Target(Kind.TIME, 0)),
    ],
)
def test_targets_are_read_as_they_are_meant(text: str, target: Target) -> None:
    assert parse_target(text, now_s=10_000) == target


@pytest.mark.parametrize("text", ["", "-1", "soon", "1y", "2024-13-01", "9" * 30, "²"])
def test_a_target_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not earliest"):
        parse_target(text, now_s=10_000)


def test_a_plan_stays_within_the_log_and_shifts_only_what_is_committed() -> None:
    places = [("t", 0), ("t", 1)]
    bounds = {("t", 0): (5, 20), ("t", 1): (0, 3)}
    shifted = plan(Target(Kind.SHIFT, -8), places, {("t", 0): 10}, bounds, {})
    assert shifted == [Move(("t", 0), 10, 5, 20)]
    late = plan(Target(Kind.TIME, 1), places, {}, bounds, {("t", 0): 7, ("t", 1): -1})
    assert [move.new for move in late] == [7, 3]
    assert [move.change for move in late] == ["new", "new"]
