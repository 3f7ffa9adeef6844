"""`moldau groups`, and `moldau consume --group`, against a real broker."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from confluent_kafka import Consumer

from moldau.cli.views.group import duration
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.asking import Asker
from tests.broker.coordination.groups.asking import Groups
from tests.broker.coordination.groups.consumer.members import Members
from tests.cli.commands.groups import (
    describe,
    has_members,
    member,
    produce,
    stamped,
    take,
)
from tests.cli.conftest import QUICKLY, Ended, Run
from tests.processes import started

WITHIN_S = 60.0


JOINED = "this member reads partition"


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def test_a_group_goes_on_exactly_where_it_stopped_printing(
    moldau: Run, topic: str, group: str
) -> None:
    sent = produce(moldau, topic, 0, 60)
    first = take(moldau, topic, group, "--max", "25")
    second = take(moldau, topic, group, "--max", "35")
    assert (len(first), len(second)) == (25, 35)
    assert sorted(first + second, key=int) == sent
    sent = produce(moldau, topic, 60, 70)
    assert sorted(take(moldau, topic, group, "--max", "10"), key=int) == sent


def test_without_from_beginning_a_new_group_starts_at_the_end(
    moldau: Run, topic: str, group: str
) -> None:
    produce(moldau, topic, 0, 5)
    ended = moldau("consume", topic, "--group", group, "--timeout", "0.3")
    assert (ended.status, ended.out) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_commits_what_was_printed_and_leaves_the_group(
    moldau: Run, moldau_session_broker: Broker, topic: str, group: str, number: int
) -> None:
    produce(moldau, topic, 0, 10)
    with member(moldau_session_broker, topic, group, "--from-beginning") as reader:
        until(lambda: len(reader.lines) == 10)
        assert reader.end(number) == 0
    view = moldau("groups", "describe", group, "--json").json
    assert (view["state"], view["members"], view["lag"]) == ("empty", [], 0)
    assert moldau("consume", topic, "--group", group, "--timeout", "0.3").out == ""


@pytest.mark.slow
def test_members_share_the_partitions_and_a_dead_one_is_replaced(
    moldau: Run, fresh_name: str, group: str
) -> None:
    topic = fresh_name
    options = ("--from-beginning", "--session-timeout", "6", "--format", "{partition} {value}")
    with Broker(group_min_session_timeout_ms=1000) as broker, ExitStack() as members:
        own = ("--bootstrap", broker.bootstrap)
        broker.create_topic(topic, partitions=3)
        one, two = (members.enter_context(member(broker, topic, group, *options)) for _ in range(2))
        until(lambda: has_members(moldau, group, 2, *own), "both members")
        sent = produce(moldau, topic, 0, 200, *own)
        until(lambda: len(one.lines) + len(two.lines) >= 200, "all messages")
        partitions = [{line.split()[0] for line in each.lines} for each in (one, two)]
        assert partitions[0].isdisjoint(partitions[1])
        counts = Counter(line.split()[1] for line in one.lines + two.lines)
        assert counts == Counter(sent)
        # What it has printed is committed within a second; then it dies without a word.
        until(lambda: describe(moldau, group, *own)["lag"] == 0, "commits")
        two.process.kill()
        sent = produce(moldau, topic, 200, 260, *own)
        before = len(two.lines)
        until(lambda: set(sent) <= {line.split()[1] for line in one.lines}, "the take-over")
        assert len(two.lines) == before
        assert one.end() == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--partition", "0"), "--partition and --group cannot be used together"),
        (("--offset", "3"), "--offset and --group cannot be used together"),
        (("--offset", "earliest"), "moldau groups reset"),
        (("--group", ""), "it cannot be empty"),
    ],
)
def test_what_a_group_decides_cannot_be_asked_for(
    moldau: Run, topic: str, group: str, words: tuple[str, ...], said: str
) -> None:
    ended = moldau("consume", topic, "--group", group, *words)
    assert ended.status == 2
    assert said in in_one_line(ended)


def test_a_session_timeout_needs_a_group(moldau: Run, topic: str) -> None:
    assert moldau("consume", topic, "--session-timeout", "9").status == 2


def test_a_group_for_a_topic_that_is_not_there_fails(moldau: Run, group: str) -> None:
    ended = moldau("consume", "nowhere", "--group", group)
    assert ended.status == 1
    assert "topic nowhere does not exist" in ended.err


def test_groups_are_listed_and_described(moldau: Run, topic: str, group: str) -> None:
    moldau("produce", topic, "--json", *QUICKLY, typed=stamped([(0, 6000), (0, 3000), (1, 1000)]))
    take(moldau, topic, group, "--max", "3")
    moldau("groups", "reset", group, "--to", "1", "--topic", topic, "--partition", "0", "--yes")

    listed = {each["group"]: each for each in moldau("groups", "list", "--json").json}
    assert listed[group] == {"group": group, "kind": "classic", "state": "empty", "members": 0}
    assert re.search(f"{group} +classic +empty", moldau("groups", "list").out)

    view = moldau("groups", "describe", group, "--json").json
    assert (view["group"], view["state"], view["lag"]) == (group, "empty", 1)
    assert 3000 <= view["seconds_behind"] < 6000
    zero, one, two = view["partitions"]
    assert (zero["committed"], zero["start"], zero["end"], zero["lag"]) == (1, 0, 2, 1)
    assert zero["seconds_behind"] == view["seconds_behind"]
    assert (one["committed"], one["lag"], one["seconds_behind"]) == (1, 0, 0)
    assert (two["committed"], two["lag"], two["seconds_behind"]) == (None, None, None)

    table = moldau("groups", "describe", group).out.splitlines()
    assert table[0].startswith(f"{group}: empty, 0 members, 1 message and ")
    assert table[1] == "kind: classic"
    assert table[2].startswith("last rebalance: ")
    assert table[2].endswith(" left")
    assert table[3].split() == [
        "TOPIC",
        "PARTITION",
        "COMMITTED",
        "END",
        "LAG",
        "BEHIND",
        "MEMBER",
    ]
    assert table[6].split() == [topic, "2", "-", "0", "-", "-", "-"]


def test_a_group_that_librdkafka_cannot_describe_is_listed(
    moldau: Run, moldau_session_broker: Broker, group: str
) -> None:
    with Asker(moldau_session_broker) as asker:
        Groups(asker).stable(group, protocol_type="consumer", protocols=(("mine", b"\x00"),))
        listed = {each["group"]: each for each in moldau("groups", "list", "--json").json}
        expected = {"group": group, "kind": "classic", "state": "stable", "members": None}
        assert listed[group] == expected
        assert re.search(f"{group} +classic +stable +-", moldau("groups", "list").out)


def test_a_consumer_group_shows_its_epochs_and_why_it_rebalanced(
    moldau: Run, moldau_session_broker: Broker, topic: str, group: str
) -> None:
    member = Consumer(
        {
            "bootstrap.servers": moldau_session_broker.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
        }
    )
    member.subscribe([topic])
    try:
        until(lambda: member.poll(0.1) or member.assignment())
        view = moldau("groups", "describe", group, "--json").json
        assert (view["kind"], view["epoch"], view["assignment_epoch"]) == ("consumer", 2, 2)
        assert (view["assignor"], len(view["members"])) == ("uniform", 1)
        lines = moldau("groups", "describe", group).out.splitlines()
        assert lines[1] == "kind: consumer, group epoch 2, assigned for epoch 2 by uniform"
        assert lines[2].endswith("joined")
    finally:
        member.close()
    found = moldau("groups", "describe", group, "--history", "--json").json
    past = [(each["epoch"], each["members"], each["kind"]) for each in found["history"]]
    assert past == [(2, 1, "consumer"), (3, 0, "consumer")]
    assert found["history"][1]["why"].endswith("left")
    assert found["since_ms"] <= found["history"][0]["ended_ms"]
    shown = moldau("groups", "describe", group, "--history")
    assert "WHY" in shown.out
    assert "kept since" in shown.err
    unknown = moldau("groups", "describe", "no-such-group", "--history")
    assert unknown.status == 1


def test_a_consumer_group_shows_who_keeps_the_others_waiting(
    moldau: Run, moldau_session_broker: Broker, topic: str, group: str
) -> None:
    with Asker(moldau_session_broker) as asker:
        members = Members(asker, group)
        assert not members.join("slow", topic).error_code
        assert moldau("groups", "describe", group, "--json").json["not_there_yet"] == []
        assert not members.join("waits", topic).error_code
        # A new assignment may be too soon after the last one.
        until(lambda: members.beat("waits", 2).member_epoch == 3)
        members.beat("slow", 2)
        view = moldau("groups", "describe", group, "--json").json
        assert (view["epoch"], view["assignment_epoch"]) == (3, 3)
        assert view["not_there_yet"] == ["slow"]
        assert (
            "still on an older assignment: slow"
            in moldau("groups", "describe", group).out.splitlines()
        )
        for member in ("slow", "waits"):
            members.beat(member, -1)


def test_a_live_view_says_what_changes(
    moldau: Run, moldau_session_broker: Broker, topic: str, group: str
) -> None:
    produce(moldau, topic, 0, 10)
    take(moldau, topic, group, "--max", "10")
    command = ["groups", "describe", group, "--watch", "--every", "0.1", "--json"]
    with started(
        [sys.executable, "-m", "moldau", *command, "--bootstrap", moldau_session_broker.bootstrap],
        stdout=subprocess.PIPE,
    ) as watching:
        assert watching.stdout is not None
        lines = iter(watching.stdout.readline, "")
        assert json.loads(next(lines))["lag"] == 0
        produce(moldau, topic, 10, 15)
        until(lambda: is_behind(json.loads(next(lines)), 5))
        moldau("groups", "reset", group, "--shift", "-1", "--yes")
        until(lambda: is_behind(json.loads(next(lines)), 8))
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
    assert watching.returncode == 0


def is_behind(view: dict[str, Any], lag: int) -> bool:
    known = all(partition["seconds_behind"] is not None for partition in view["partitions"])
    return view["lag"] == lag and known


def test_a_live_view_on_a_terminal_is_a_table_that_changes(
    moldau: Run, moldau_session_broker: Broker, topic: str, group: str
) -> None:
    produce(moldau, topic, 0, 10)
    take(moldau, topic, group, "--max", "10")
    command = ["groups", "describe", group, "--watch", "--every", "0.1"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "moldau", *command, "--bootstrap", moldau_session_broker.bootstrap],
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm-256color"},
    )
    os.close(theirs)
    seen = b""
    try:
        while seen.count(b"stop with Ctrl-C") < 3:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        # A terminal that nobody reads holds up whoever writes to it.
        with suppress(OSError):
            while more := os.read(ours, 65536):
                seen += more
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"TOPIC" in seen
    assert f"{group}: empty, 0 members, 0 messages".encode() in seen


@pytest.fixture
def committed(moldau: Run, topic: str, group: str) -> str:
    """A group that has read ten messages of each partition, written 1,000 to 100 seconds ago."""
    messages = [(partition, 1000 - 100 * n) for n in range(10) for partition in range(3)]
    moldau("produce", topic, "--json", *QUICKLY, typed=stamped(messages))
    take(moldau, topic, group, "--max", "30")
    return group


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("describe", "nowhere"), 1, "there is no group nowhere"),
        (("reset", "nowhere", "--to", "earliest"), 1, "group nowhere has committed nothing"),
        (("reset", "g", "--to", "0", "--topic", "nowhere"), 1, "topic nowhere does not exist"),
        (("reset", "g", "--to", "0", "--topic", "TOPIC", "--partition", "7"), 1, "no partition 7"),
        (("reset", "g", "--shift", "1", "--topic", "TOPIC"), 1, "no committed offsets there"),
        (("reset", "g"), 2, "--to or --shift"),
        (("reset", "g", "--to", "0", "--shift", "1"), 2, "--to or --shift"),
        (("reset", "g", "--to", "someday"), 2, "'someday' is not earliest"),
        (("reset", "g", "--to", "0", "--partition", "1"), 2, "exactly one --topic"),
        (("delete", "nowhere", "--yes"), 1, "there is no group nowhere"),
        (("describe",), 2, "GROUP"),
    ],
)
def test_mistakes_are_said_in_words(
    moldau: Run, topic: str, words: tuple[str, ...], status: int, said: str
) -> None:
    ended = moldau("groups", *(topic if word == "TOPIC" else word for word in words))
    assert ended.status == status
    assert said in in_one_line(ended)


def in_one_line(ended: Ended) -> str:
    return " ".join(ended.err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.44, "0.4 s"),
        (42.4, "42 s"),
        (200, "3 m 20 s"),
        (7500, "2 h 5 m"),
        (273_700, "3 d 4 h"),
    ],
)
def test_durations_are_for_people(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
