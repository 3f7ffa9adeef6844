"""Share groups: everything is assigned, evenly, and a member is told once."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.coordination.groups.assignors.assignor import MemberSpec
from moldau.broker.coordination.groups.assignors.simple import SimpleAssignor
from moldau.broker.coordination.groups.group import Answer, Effect
from moldau.broker.coordination.groups.share import records
from moldau.broker.coordination.groups.share.group import ShareGroup, StoreState
from moldau.broker.coordination.groups.share.messages import (
    Heard,
    Heartbeat,
    Refused,
    ShareLimits,
)
from moldau.broker.coordination.groups.share.records import (
    Current,
    KnownTopic,
    MemberMetadata,
    Part,
)
from moldau.broker.coordination.records import InvalidRecord
from moldau.wire.errors import Error

A, B = UUID(int=1), UUID(int=2)


class Cluster:
    """Topics that tests can change."""

    def __init__(self) -> None:
        self.version = 1
        self.topics: dict[str, tuple[UUID, int]] = {"a": (A, 2), "b": (B, 1)}

    def get(self, name: str) -> tuple[UUID, int] | None:
        return self.topics.get(name)

    def put(self, name: str, id: UUID, partitions: int) -> None:
        self.topics[name] = id, partitions
        self.version += 1


class Story:
    """A group whose writes all succeed, and its log."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.now = 0
        self.log: dict[bytes, bytes] = {}
        self.group = self.new_group()

    def new_group(self) -> ShareGroup:
        return ShareGroup("g", self.cluster, lambda: ShareLimits(1000, 100, 3))

    def beat(
        self, member: str, epoch: int, topics: tuple[str, ...] | None = None, **more: Any
    ) -> Any:
        request = Heartbeat(member, epoch, more.get("rack"), topics, "client", "host")
        return self.carry_out(self.group.heartbeat(request, member, self.now))[-1]

    def carry_out(self, effects: list[Effect]) -> list[Heard]:
        heard: list[Heard] = []
        for effect in effects:
            if isinstance(effect, StoreState):
                for key, value in effect.records("g", 7):
                    if value is None:
                        self.log.pop(key, None)
                    else:
                        self.log[key] = value
                heard += self.carry_out(self.group.stored(effect, Error.NONE, self.now))
            elif isinstance(effect, Answer):
                heard.append(effect.body)
        return heard

    def move(self) -> None:
        """Read the group back from its log, as another coordinator does."""
        before = self.group.state
        self.group = self.new_group()
        for key, value in self.log.items():
            self.group.replay(key, value)
        self.carry_out(self.group.resume(self.now))
        assert self.group.state == before


def test_a_member_joins_stays_and_leaves() -> None:
    story = Story()
    heard = story.beat("m", 0, ("a", "b"))
    assert (heard.error, heard.epoch, heard.interval_ms) == (Error.NONE, 1, 100)
    assert heard.assignment == {A: {0, 1}, B: {0}}
    story.move()
    assert story.beat("m", 1) == Heard(Error.NONE, None, "m", 1, 100, None)
    assert story.group.state_name == "Stable"
    assert story.beat("m", -1) == Heard(Error.NONE, None, "m", -1)
    story.move()
    assert story.group.state_name == "Empty"
    assert story.group.is_empty


def test_members_are_told_of_changes_by_their_next_heartbeat() -> None:
    story = Story()
    story.beat("m", 0, ("a",))
    heard = story.beat("n", 0, ("a",))
    assert heard.epoch == 2
    mine = story.beat("m", 1)
    assert (mine.epoch, len(mine.assignment[A] | heard.assignment[A])) == (2, 2)
    # The answer was lost: the member says again what it knew.
    assert story.beat("m", 1).assignment == mine.assignment
    story.cluster.put("a", A, 3)
    heard = story.beat("m", 2)
    assert heard.epoch == 3
    assert sum(map(len, heard.assignment.values())) in (1, 2)


def test_a_topic_that_comes_later_is_assigned_and_one_that_is_gone_is_not() -> None:
    story = Story()
    assert story.beat("m", 0, ("new",)).assignment == {}
    story.cluster.put("new", UUID(int=9), 1)
    heard = story.beat("m", 1)
    assert (heard.epoch, heard.assignment) == (2, {UUID(int=9): {0}})
    del story.cluster.topics["new"]
    story.cluster.version += 1
    assert story.beat("m", 2).assignment == {}


def test_who_is_silent_is_removed() -> None:
    story = Story()
    story.beat("m", 0, ("a",))
    story.now = 600
    story.beat("n", 0, ("a",))
    assert story.group.due_at == 1000
    story.now = 1000
    story.carry_out(story.group.expire(1000))
    assert list(story.group.members) == ["n"]
    with pytest.raises(Refused) as refused:
        story.beat("m", 1)
    assert refused.value.error is Error.UNKNOWN_MEMBER_ID
    assert story.beat("n", 2).assignment == {A: {0, 1}}


def test_bad_epochs_are_refused_and_change_nothing() -> None:
    story = Story()
    for member in ("m", "n", "o"):
        story.beat(member, 0, ("a",))
    assert story.beat("m", 1).epoch == 3
    before = story.group.state
    for member, epoch, error in (
        ("m", 4, Error.FENCED_MEMBER_EPOCH),
        ("o", 1, Error.FENCED_MEMBER_EPOCH),
        ("x", 1, Error.UNKNOWN_MEMBER_ID),
        ("x", -1, Error.UNKNOWN_MEMBER_ID),
        ("x", 0, Error.GROUP_MAX_SIZE_REACHED),
    ):
        with pytest.raises(Refused) as refused:
            story.beat(member, epoch, ("a",))
        assert refused.value.error is error, (member, epoch)
    assert story.group.state is before


def test_what_was_never_written_never_was() -> None:
    story = Story()
    request = Heartbeat("m", 0, None, ("a",), "client", "host")
    store = story.group.heartbeat(request, "m", 0)[0]
    assert isinstance(store, StoreState)
    store.take_back()
    answers = story.carry_out(story.group.stored(store, Error.NOT_COORDINATOR, 0))
    assert answers == [Heard(Error.NOT_COORDINATOR)]
    assert not story.group.members


def test_a_deleted_group_leaves_nothing_in_the_log() -> None:
    story = Story()
    story.beat("m", 0, ("a",))
    story.beat("n", 0, ("b",))
    story.beat("m", 1)
    gone = story.group.tombstones()
    assert {key for key, _ in gone} == story.log.keys()
    assert all(value is None for _, value in gone)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.sampled_from(("join", "beat", "leave", "grow", "move"))
        ),
        max_size=30,
    )
)
def test_every_partition_that_somebody_reads_is_assigned_at_any_time(
    steps: list[tuple[str, str]],
) -> None:
    story = Story()
    epochs: dict[str, int] = {}
    for member, step in steps:
        story.now += 10
        try:
            if step == "join":
                epochs[member] = story.beat(member, 0, ("a",) if member < "c" else ("a", "b")).epoch
            elif step == "beat" and member in epochs:
                epochs[member] = story.beat(member, epochs[member]).epoch
            elif step == "leave":
                story.beat(member, -1)
                epochs.pop(member, None)
            elif step == "grow":
                story.cluster.put("a", A, min(story.cluster.topics["a"][1] + 1, 6))
            elif step == "move":
                story.move()
        except Refused:
            was_refused = True
        else:
            was_refused = False
        assert not was_refused or member not in epochs or len(story.group.members) >= 3
    for member in list(story.group.members):
        epochs[member] = story.beat(member, epochs[member]).epoch
    state = story.group.state
    wanted = {name for each in state.members.values() for name in each.topics}
    assigned = {
        (id, index)
        for current in state.currents.values()
        for id, has in current.assigned.items()
        for index in has
    }
    topics = story.cluster.topics
    assert assigned == {
        (topics[name][0], index) for name in wanted for index in range(topics[name][1])
    }


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_members_that_read_the_same_have_as_much_as_each_other(
    members: int, partitions: int, data: st.DataObject
) -> None:
    assignor = SimpleAssignor()
    found: dict[str, Any] = {}
    for _ in range(3):
        names = [f"m{n}" for n in range(data.draw(st.integers(1, members)))]
        specs = {n: MemberSpec(frozenset({A}), found.get(n, {})) for n in names}
        found = assignor.assign(specs, {A: partitions})
        sizes = [len(has.get(A, ())) for has in found.values()]
        assert max(sizes) - min(sizes) <= 1
        shared = Counter(index for has in found.values() for index in has.get(A, ()))
        assert set(shared) == set(range(partitions))
        assert (
            assignor.assign(
                {n: MemberSpec(frozenset({A}), found[n]) for n in names}, {A: partitions}
            )
            == found
        )


partitions = st.dictionaries(st.sampled_from([A, B]), st.frozensets(st.integers(0, 9), min_size=1))
texts = st.text(max_size=8)


@given(
    st.builds(MemberMetadata, st.none() | texts, texts, texts, st.lists(texts).map(tuple)),
    st.builds(Current, st.integers(0, 9), st.integers(0, 9), partitions),
    st.dictionaries(
        st.sampled_from([A, B]), st.builds(KnownTopic, texts, st.frozensets(st.integers(0, 9)))
    ),
)
def test_what_is_written_is_read_back(
    member: MemberMetadata, current: Current, known: dict[UUID, KnownTopic]
) -> None:
    assert records.read_member(records.member_value(member)) == member
    assert records.read_current(records.current_value(current)) == current
    assert records.read_states(records.states_value(known)) == known
    target = records.target_member_value(current.assigned)
    assert records.read_target_member(target) == current.assigned
    assert records.read_group(records.group_value(5, -7)) == (5, -7)
    assert records.read_target(records.target_value(5, 1000)) == 5
    assert records.read_part(records.part_key(Part.MEMBER, "g", "m")) == (Part.MEMBER, "m")
    assert records.read_part(records.part_key(Part.GROUP, "g")) == (Part.GROUP, "")


@given(st.binary(max_size=60))
def test_bytes_that_are_no_record_are_found_out(data: bytes) -> None:
    group = Story().group
    for part in Part:
        with contextlib.suppress(InvalidRecord):
            group.replay(records.part_key(part, "g", "m"), b"\x00\x00" + data)
    with contextlib.suppress(InvalidRecord):
        group.replay(b"\x00\x0a" + data, data)


def test_a_silent_member_that_could_not_be_removed_is_tried_again() -> None:
    story = Story()
    story.beat("m", 0, ("a",))
    late = story.group.due_at
    store = next(each for each in story.group.expire(late) if isinstance(each, StoreState))
    store.take_back()
    assert story.group.stored(store, Error.COORDINATOR_NOT_AVAILABLE, late) == []
    assert list(story.group.members) == ["m"]
    assert late < story.group.due_at < late + 60_000
    story.now = story.group.due_at
    story.carry_out(story.group.expire(story.now))
    assert story.group.is_empty
