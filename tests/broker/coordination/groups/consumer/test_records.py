"""Records of consumer groups: what is written is read back, and Kafka's bytes are ours."""

from __future__ import annotations

import contextlib
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given

from moldau.broker.coordination.groups.consumer.embedded import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from moldau.broker.coordination.groups.consumer.parts import (
    ClassicMetadata,
    Current,
    GroupEpoch,
    Member,
    MemberState,
    Part,
    ResolvedRegex,
    TargetEpoch,
    Value,
)
from moldau.broker.coordination.groups.consumer.records import read_record, record
from moldau.broker.coordination.groups.records import KindKey, read_key
from moldau.broker.coordination.records import InvalidRecord

texts = st.text(max_size=20)
numbers = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
topics = st.builds(lambda number: UUID(int=number), st.integers(0, 2**128 - 1))
partitions = st.frozensets(st.integers(0, 1000), min_size=1, max_size=5)
assignments = st.dictionaries(topics, partitions, max_size=3)
owned = st.dictionaries(
    topics, st.dictionaries(st.integers(0, 1000), numbers, min_size=1, max_size=4), max_size=3
)
classics = st.builds(
    ClassicMetadata,
    numbers,
    st.lists(st.tuples(texts, st.binary(max_size=20)), max_size=3).map(tuple),
)
values: dict[Part, st.SearchStrategy[Value]] = {
    Part.EPOCH: st.builds(GroupEpoch, numbers, longs),
    Part.TARGET_EPOCH: st.builds(TargetEpoch, numbers, longs),
    Part.TARGET: assignments,
    Part.CURRENT: st.builds(
        Current, numbers, numbers, st.sampled_from(list(MemberState)), owned, owned
    ),
    Part.REGEX: st.builds(ResolvedRegex, st.frozensets(texts, max_size=4), longs, longs),
    Part.MEMBER: st.builds(
        Member,
        st.none() | texts,
        st.none() | texts,
        texts,
        texts,
        st.frozensets(texts, max_size=4),
        texts,
        numbers,
        st.none() | texts,
        st.none() | classics,
    ),
}


@given(st.data(), st.sampled_from(list(Part)), texts, texts)
def test_a_part_is_read_back_as_it_was_written(
    data: st.DataObject, part: Part, group: str, name: str
) -> None:
    value = data.draw(values[part])
    named = name if part in (Part.MEMBER, Part.TARGET, Part.CURRENT, Part.REGEX) else ""
    key, written = record(group, part, name, value)
    assert written is not None
    assert read_record(key, written) == (part, named, value)
    assert read_key(key) == KindKey(group, "consumer")
    assert record(group, part, name, None) == (key, None)


def test_the_bytes_are_those_that_kafka_writes() -> None:
    """As kafka.coordinator.group of 4.3.1 serializes the same values."""
    key, value = record("g", Part.EPOCH, "", GroupEpoch(3, 7))
    assert key == bytes.fromhex("0003 0001 67")
    assert value == bytes.fromhex("0000 00000003 01 00 08 0000000000000007")
    key, value = record("g", Part.CURRENT, "m", Current(3, 2, MemberState.STABLE))
    assert key == bytes.fromhex("0008 0001 67 0001 6d")
    assert value == bytes.fromhex("0000 00000003 00000002 00 01 01 00")
    topic = UUID(int=1)
    _, value = record("g", Part.TARGET, "m", {topic: frozenset((2, 1))})
    assert value == bytes.fromhex("0000 02") + topic.bytes + bytes.fromhex(
        "03 00000001 00000002 00 00"
    )


@given(st.sampled_from(list(Part)), st.binary(max_size=60))
def test_other_bytes_are_refused_and_nothing_else(part: Part, data: bytes) -> None:
    key, _ = record("g", part, "m", None)
    with contextlib.suppress(InvalidRecord):
        read_record(key, data)
    with contextlib.suppress(InvalidRecord):
        read_record(key, b"\x00\x00" + data)
    for read in (read_subscription, read_assignment):
        with contextlib.suppress(InvalidRecord):
            read(data)


def test_epochs_of_partitions_that_an_older_version_did_not_write_are_the_members() -> None:
    topic = UUID(int=1)
    key, _ = record("g", Part.CURRENT, "m", None)
    value = bytes.fromhex("0000 00000005 00000004 00 02") + topic.bytes
    value += bytes.fromhex("02 00000001 00 01 00")
    found = read_record(key, value)
    assert found == (Part.CURRENT, "m", Current(5, 4, MemberState.STABLE, {topic: {1: 5}}))


@given(st.dictionaries(texts, partitions, max_size=3), st.integers(0, 3))
def test_an_assignment_for_a_classic_member_is_read_back(
    given_out: dict[str, frozenset[int]], version: int
) -> None:
    assert read_assignment(write_assignment(given_out, version)) == given_out
