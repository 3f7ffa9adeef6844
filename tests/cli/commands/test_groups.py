"""`moldau groups`, and `moldau consume --group`, against a real broker."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import pytest

from moldau.cli.reset import Kind, Move, Target, parse_target, plan
from moldau.cli.views.group import duration
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.cli.conftest import QUICKLY, Ended, Run
from tests.processes import started

WITHIN_S = 30.0
JOINED = "this member reads partition"


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


class MemberProcess:
    """`moldau consume --group` in a process of its own, read by a thread."""

    def __init__(self, broker: Broker, topic: str, group: str, *words: str) -> None:
        command = ["consume", topic, "--group", group, "--bootstrap", broker.bootstrap, *words]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moldau", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.said: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.said)),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))

    def end(self, number: int = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(20)
        for thread in self._threads:
            thread.join(20)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status


@contextmanager
def member(broker: Broker, topic: str, group: str, *words: str) -> Iterator[MemberProcess]:
    started = MemberProcess(broker, topic, group, *words)
    try:
        yield started
    finally:
        started.end(signal.SIGKILL)


def produce(moldau: Run, topic: str, first: int, last: int, *words: str) -> list[str]:
    lines = [str(number) for number in range(first, last)]
    typed = "".join(f"{line},{line}\n" for line in lines)
    words = ("--key-separator", ",", *QUICKLY, *words)
    assert moldau("produce", topic, *words, typed=typed).status == 0
    return lines


def take(moldau: Run, topic: str, group: str, *words: str) -> list[str]:
    ended = moldau("consume", topic, "--group", group, "--from-beginning", *words)
    assert ended.status == 0, ended.err
    return ended.out.splitlines()


def test_a_group_goes_on_exactly_where_it_stopped_printing(
    moldau: Run, topic: str, group: str
) -> None:
    sent = produce(moldau, topic, 0, 60)
    first = take(moldau, topic, group, "--max", "25")
    second = take(moldau, topic, group, "--timeout", "1")
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


def test_members_share_the_partitions_and_a_dead_one_is_replaced(
    moldau: Run, fresh_name: str, group: str
) -> None:
    topic = fresh_name
    options = ("--from-beginning", "--session-timeout", "1.5", "--format", "{partition} {value}")
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


def describe(moldau: Run, group: str, *words: str) -> dict[str, Any]:
    view: dict[str, Any] = moldau("groups", "describe", group, "--json", *words).json
    return view


def has_members(moldau: Run, group: str, count: int, *words: str) -> bool:
    view = moldau("groups", "describe", group, "--json", *words)
    if view.status != 0:
        return False
    owned = [member for member in view.json["members"] if member["partitions"]]
    return view.json["state"] == "stable" and len(owned) == count


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
    moldau("produce", topic, "--json", *QUICKLY, typed=stamped([(0, 60), (0, 30), (1, 10)]))
    take(moldau, topic, group, "--max", "3")
    moldau("groups", "reset", group, "--to", "1", "--topic", topic, "--partition", "0", "--yes")

    listed = {each["group"]: each for each in moldau("groups", "list", "--json").json}
    assert listed[group] == {"group": group, "state": "empty", "members": 0}
    assert f"{group}  empty" in moldau("groups", "list").out

    view = moldau("groups", "describe", group, "--json").json
    assert (view["group"], view["state"], view["lag"]) == (group, "empty", 1)
    assert 30 <= view["seconds_behind"] < 60
    zero, one, two = view["partitions"]
    assert (zero["committed"], zero["start"], zero["end"], zero["lag"]) == (1, 0, 2, 1)
    assert zero["seconds_behind"] == view["seconds_behind"]
    assert (one["committed"], one["lag"], one["seconds_behind"]) == (1, 0, 0)
    assert (two["committed"], two["lag"], two["seconds_behind"]) == (None, None, None)

    table = moldau("groups", "describe", group).out.splitlines()
    assert table[0].startswith(f"{group}: empty, 0 members, 1 message and 3")
    assert table[1].split() == [
        "TOPIC",
        "PARTITION",
        "COMMITTED",
        "END",
        "LAG",
        "BEHIND",
        "MEMBER",
    ]
    assert table[4].split() == [topic, "2", "-", "0", "-", "-", "-"]


def stamped(places: list[tuple[int, int]]) -> str:
    """JSON lines for messages in a partition that were written so many seconds ago."""
    now_ms = int(time.time() * 1000)
    lines = [
        {"partition": partition, "value": "x", "timestamp": now_ms - 1000 * seconds}
        for partition, seconds in places
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


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
        watching.communicate(timeout=20)
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
        assert process.wait(20) == 0
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
