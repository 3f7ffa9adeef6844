"""The record format of __consumer_offsets: Kafka's, in and out, and nothing else in."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.coordination.groups import records
from moldau.broker.coordination.groups.classic.subscription import subscribed_topics
from moldau.broker.coordination.groups.records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    MemberMetadata,
    OffsetKey,
)
from moldau.broker.coordination.records import InvalidRecord

names = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
timeouts = st.integers(0, 2**31 - 1)
committed_offsets = st.builds(CommittedOffset, int64s, int32s, names, int64s, st.just(-1))
members = st.builds(
    MemberMetadata,
    names,
    st.none() | names,
    names,
    names,
    timeouts,
    timeouts,
    st.binary(max_size=50),
    st.binary(max_size=50),
)
groups = st.builds(
    GroupMetadata,
    names,
    int32s,
    st.none() | names,
    st.none() | names,
    int64s,
    st.lists(members, max_size=3).map(tuple),
)


@given(names, names, int32s)
def test_the_key_of_an_offset_is_read_back_as_it_was_written(
    group: str, topic: str, partition: int
) -> None:
    key = records.offset_key(group, topic, partition)
    assert records.read_key(key) == OffsetKey(group, topic, partition)


@given(names)
def test_the_key_of_a_group_is_read_back_as_it_was_written(group: str) -> None:
    assert records.read_key(records.group_key(group)) == GroupKey(group)


@given(committed_offsets)
def test_an_offset_is_read_back_as_it_was_written(committed: CommittedOffset) -> None:
    assert records.read_offset(records.offset_value(committed)) == committed


@given(committed_offsets, st.integers(0, 2**63 - 1))
def test_an_offset_with_an_expiry_keeps_it_and_loses_its_epoch(
    committed: CommittedOffset, expires_at: int
) -> None:
    value = records.offset_value(committed._replace(expire_timestamp=expires_at))
    expected = committed._replace(expire_timestamp=expires_at, leader_epoch=-1)
    assert value[:2] == b"\x00\x01"
    assert records.read_offset(value) == (expected if expires_at != -1 else committed)


@given(groups)
def test_a_group_is_read_back_as_it_was_written(group: GroupMetadata) -> None:
    assert records.read_group(records.group_value(group)) == group


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_and_nothing_worse(data: bytes) -> None:
    for read in (records.read_key, records.read_offset, records.read_group):
        try:
            read(data)
        except InvalidRecord:
            continue


@given(groups, st.data())
def test_a_group_that_is_cut_short_is_refused(group: GroupMetadata, data: Any) -> None:
    value = records.group_value(group)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(InvalidRecord):
        records.read_group(value[:cut])


def test_keys_of_kinds_that_are_not_served_are_left_alone() -> None:
    # A streams group's metadata (KIP-1071).
    assert records.read_key(b"\x00\x11\x00\x01g") is None
    with pytest.raises(InvalidRecord):
        records.read_key(b"\xff\xff")


def test_offsets_are_laid_out_as_kafka_does() -> None:
    assert records.offset_key("g", "top", 7) == bytes.fromhex("0001 0001 67 0003 746f70 00000007")
    value = records.offset_value(CommittedOffset(5, 2, "m", 9))
    assert value == bytes.fromhex("0003 0000000000000005 00000002 0001 6d 0000000000000009")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 0000000000000005 0001 6d 0000000000000009", CommittedOffset(5, -1, "m", 9)),
        (
            "0001 0000000000000005 0001 6d 0000000000000009 000000000000000a",
            CommittedOffset(5, -1, "m", 9, 10),
        ),
        ("0002 0000000000000005 0001 6d 0000000000000009", CommittedOffset(5, -1, "m", 9)),
        ("0004 0000000000000005 00000002 02 6d 0000000000000009 00", CommittedOffset(5, 2, "m", 9)),
    ],
    ids=["v0", "v1", "v2", "v4"],
)
def test_offsets_of_every_version_are_read(value: str, expected: CommittedOffset) -> None:
    assert records.read_offset(bytes.fromhex(value)) == expected


def old_group(version: int) -> bytes:
    """A group with one member as Kafka's versions before 3, and version 4, have it."""
    flexible = version >= 4

    def text(value: str) -> bytes:
        data = value.encode()
        return (bytes([len(data) + 1]) if flexible else struct.pack(">h", len(data))) + data

    def blob(data: bytes) -> bytes:
        return (bytes([len(data) + 1]) if flexible else struct.pack(">i", len(data))) + data

    out = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 4)
    out += text("range") + text("m-1")
    if version >= 2:
        out += struct.pack(">q", 99)
    out += b"\x02" if flexible else struct.pack(">i", 1)
    out += text("m-1")
    if version >= 3:
        out += text("static")
    out += text("client") + text("/host")
    if version >= 1:
        out += struct.pack(">i", 60)
    out += struct.pack(">i", 10) + blob(b"sub") + blob(b"asg")
    if flexible:
        out += b"\x01\x00\x02xy" + b"\x00"
    return out


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    member = MemberMetadata(
        "m-1",
        "static" if version >= 3 else None,
        "client",
        "/host",
        60 if version >= 1 else 10,
        10,
        b"sub",
        b"asg",
    )
    timestamp = 99 if version >= 2 else -1
    expected = GroupMetadata("consumer", 4, "range", "m-1", timestamp, (member,))
    assert records.read_group(old_group(version)) == expected


@given(st.lists(st.text(min_size=1, max_size=10), max_size=4), st.binary(max_size=10))
def test_the_topics_of_a_subscription_are_found_whatever_follows_them(
    topics: list[str], rest: bytes
) -> None:
    data = struct.pack(">hi", 1, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic.encode())) + topic.encode()
    assert subscribed_topics(data + rest) == frozenset(topics)


@given(st.binary(max_size=60))
def test_a_subscription_that_is_none_is_no_error(data: bytes) -> None:
    topics = subscribed_topics(data)
    assert topics is None or isinstance(topics, frozenset)
