"""Assignors: everything is assigned once, evenly, and nothing moves without need."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given

from moldau.broker.coordination.groups.assignors.assignor import (
    Assignment,
    Assignor,
    MemberSpec,
)
from moldau.broker.coordination.groups.assignors.hash_order import hash_order, string_hash
from moldau.broker.coordination.groups.assignors.range import RangeAssignor
from moldau.broker.coordination.groups.assignors.uniform import UniformAssignor

A, B, C = (UUID(int=number << 64 | number) for number in (1, 2, 3))
UNIFORM, RANGE = UniformAssignor(), RangeAssignor()

sizes_of_topics = st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 40), min_size=1)
names = st.sets(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=12)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, MemberSpec], dict[UUID, int]]:
    sizes = draw(sizes_of_topics)
    alike = draw(st.booleans())
    everything = frozenset(sizes)
    subsets = st.frozensets(st.sampled_from(sorted(sizes)))
    members = {
        name: MemberSpec(everything if alike else draw(subsets)) for name in sorted(draw(names))
    }
    return members, sizes


def holding(
    members: Mapping[str, MemberSpec], found: dict[str, Assignment]
) -> dict[str, MemberSpec]:
    return {id: spec._replace(assigned=found.get(id, {})) for id, spec in members.items()}


def wanted(members: Mapping[str, MemberSpec], sizes: Mapping[UUID, int]) -> dict[UUID, int]:
    topics = {topic for member in members.values() for topic in member.topics}
    return {topic: size for topic, size in sizes.items() if topic in topics}


def places(assignment: Assignment) -> set[tuple[UUID, int]]:
    return {(topic, each) for topic, partitions in assignment.items() for each in partitions}


def check(
    members: Mapping[str, MemberSpec], sizes: Mapping[UUID, int], found: dict[str, Assignment]
) -> None:
    every = [place for assignment in found.values() for place in places(assignment)]
    assert sorted(every) == sorted((topic, p) for topic, size in sizes.items() for p in range(size))
    for id, assignment in found.items():
        assert assignment.keys() <= members[id].topics
        assert all(assignment.values())


@given(groups(), st.sampled_from([UNIFORM, RANGE]))
def test_every_partition_goes_to_one_member_that_reads_its_topic(
    group: tuple[dict[str, MemberSpec], dict[UUID, int]], assignor: Assignor
) -> None:
    members, sizes = group[0], wanted(*group)
    found = assignor.assign(members, sizes)
    check(members, sizes, found)
    again = assignor.assign(holding(members, found), sizes)
    assert again == found


@given(sizes_of_topics, names, names, names)
def test_uniform_is_even_and_moves_no_more_than_it_must(
    sizes: dict[UUID, int], stay: set[str], come: set[str], go: set[str]
) -> None:
    everything = MemberSpec(frozenset(sizes))
    before = dict.fromkeys(sorted(stay | go), everything)
    held = holding(before, UNIFORM.assign(before, sizes))
    after = {id: held.get(id, everything) for id in sorted(stay | come)}
    found = UNIFORM.assign(after, sizes)
    check(after, sizes, found)
    counts = [len(places(assignment)) for assignment in found.values()]
    assert max(counts) - min(counts) <= 1
    # Nobody gives up a partition and gets another, and nobody gives up more than evenness takes.
    for id, member in after.items():
        old, new = places(member.assigned), places(found[id])
        assert old <= new or new <= old
        assert len(old - new) <= max(0, len(old) - min(counts))


@given(groups())
def test_uniform_leaves_no_two_readers_of_a_topic_apart(
    group: tuple[dict[str, MemberSpec], dict[UUID, int]],
) -> None:
    members, sizes = group[0], wanted(*group)
    found = UNIFORM.assign(members, sizes)
    loads = {id: len(places(assignment)) for id, assignment in found.items()}
    for topic in sizes:
        readers = [id for id in members if topic in members[id].topics]
        for giver in readers:
            if topic in found[giver]:
                assert all(loads[giver] - loads[taker] <= 1 for taker in readers)


def test_range_keeps_the_same_partitions_of_several_topics_together() -> None:
    members = {id: MemberSpec(frozenset((A, B))) for id in ("m2", "m1", "m3")}
    found = RANGE.assign(members, {A: 7, B: 7})
    assert found["m1"] == {A: frozenset((0, 1, 2)), B: frozenset((0, 1, 2))}
    assert found["m2"] == {A: frozenset((3, 4)), B: frozenset((3, 4))}
    assert found["m3"] == {A: frozenset((5, 6)), B: frozenset((5, 6))}


def test_range_knows_static_members_by_their_instances() -> None:
    both = frozenset((A,))
    before = {"x": MemberSpec(both, instance_id="i1"), "a": MemberSpec(both)}
    after = {"z": MemberSpec(both, instance_id="i1"), "a": MemberSpec(both)}
    assert RANGE.assign(before, {A: 4})["x"] == RANGE.assign(after, {A: 4})["z"]
    assert RANGE.assign(before, {A: 4})["x"] == {A: frozenset((0, 1))}


def test_hash_order_is_that_of_a_java_hash_map() -> None:
    keys = ["alpha", "beta", "gamma", "delta", "m-1", "m-2", "m-3"]
    # As the keySet() of a HashMap that these were put into.
    ordered = ["m-1", "m-3", "m-2", "alpha", "delta", "beta", "gamma"]
    assert hash_order(keys, string_hash) == ordered
    many = hash_order([f"member-{number}" for number in range(30)], string_hash)
    numbers = [int(name.removeprefix("member-")) for name in many]
    assert numbers[:8] == [19, 18, 17, 16, 5, 15, 6, 14]
    assert many[-1] == "member-0"
