"""Fetch from the asking side: against the broker's own codec, and against damaged bytes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.peer.fetching import (
    FetchAnswer,
    FetchQuestion,
    Wanted,
    decode_beginning,
    decode_fetch,
    encode_fetch,
)
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.fetch import FetchedPartition, fetch_codec
from moldau.wire.primitives import MalformedRequest
from tests.peer.peers import Slice

FETCH = VERSIONS[Api.FETCH]
ALL_VERSIONS = range(FETCH.first, FETCH.last + 1)
ID = UUID(int=77)


FULL = FetchedPartition(0, 0, 50, 40, 3, Slice(b"x" * 300), aborted=[(9, 2), (8, 30)])
EMPTY = FetchedPartition(1, 6, leader=(4, 2), diverging=(1, 17))


def answer(version: int, *partitions: FetchedPartition, code: int = 0) -> bytes:
    """The body of a response as a broker of ours writes it."""
    codec = fetch_codec(version)
    key = ID if codec.by_id else "topic"
    topics = [(key, list(partitions or (FULL, EMPTY)))]
    parts: list[Any] = codec.encode(5, code, 9, topics, [(4, "h", 1, None)])
    whole = b"".join(part.data if isinstance(part, Slice) else bytes(part) for part in parts)
    return whole[9 if codec.flexible else 8 :]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_an_answer_of_every_version_is_read_with_its_records_in_place(version: int) -> None:
    body = memoryview(answer(version))
    read = decode_fetch(version, body)
    first, second = read.partitions
    assert first.topic == (ID if version >= 13 else "topic")
    assert (first.high_watermark, first.last_stable) == (50, 40)
    assert first.log_start == (3 if version >= 5 else -1)
    assert first.aborted == [(9, 2), (8, 30)]
    assert first.records == b"x" * 300
    assert first.records.obj is body.obj
    assert (second.partition, second.error, len(second.records)) == (1, 6, 0)
    if version >= 12:
        assert second.diverging == (1, 17)
        assert second.leader == ((4, 2) if version >= 16 else None)


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("replica_id", [-1, 3])
def test_a_question_of_every_version_is_what_the_broker_understands(
    version: int, replica_id: int
) -> None:
    wanted = [Wanted("topic", ID, 4, 100, 5000, leader_epoch=7), Wanted("topic", ID, 5, 0, 6000)]
    question = FetchQuestion(
        wanted, max_wait_ms=10, min_bytes=2, max_bytes=9000, read_committed=True,
        replica_id=replica_id, replica_epoch=12,
    )  # fmt: skip
    codec = fetch_codec(version)
    read = codec.decode(memoryview(encode_fetch(version, question)), 0)
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes) == (10, 2, 9000)
    assert (read.isolation_level, read.replica_id) == (1, replica_id)
    ((key, partitions),) = read.topics
    assert key == (ID if codec.by_id else "topic")
    assert [(p.partition, p.fetch_offset, p.max_bytes) for p in partitions] == [
        (4, 100, 5000),
        (5, 0, 6000),
    ]
    assert partitions[0].current_leader_epoch == (7 if version >= 9 else -1)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_what_stands_before_the_records_is_read_before_they_are_there(version: int) -> None:
    body = memoryview(answer(version, FULL))
    (whole,) = decode_fetch(version, body).partitions
    begun = decode_beginning(version, body)
    assert begun.partition == whole._replace(records=memoryview(b""))
    assert (begun.error, begun.records_size) == (0, 300)
    assert body[begun.records_at :][:300] == b"x" * 300
    assert decode_beginning(version, body[: begun.records_at]) == begun
    for size in range(begun.records_at):
        with pytest.raises(MalformedRequest):
            decode_beginning(version, body[:size])


@pytest.mark.parametrize("version", [FETCH.first, 12, FETCH.last])
def test_an_answer_for_more_than_one_partition_has_no_beginning(version: int) -> None:
    with pytest.raises(MalformedRequest, match="2 partitions instead of one"):
        decode_beginning(version, memoryview(answer(version)))


def test_an_answer_that_refuses_the_request_as_such_says_so() -> None:
    begun = decode_beginning(FETCH.last, memoryview(answer(FETCH.last, code=71)))
    assert (begun.error, begun.partition, begun.records_size) == (71, None, 0)


@settings(max_examples=1500)
@given(st.data())
def test_a_damaged_answer_is_an_answer_or_malformed(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(ALL_VERSIONS))
    body = bytearray(answer(version))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read_or_refused(version, bytes(body[: data.draw(st.integers(0, len(body)))]))


@settings(max_examples=500)
@given(st.sampled_from(ALL_VERSIONS), st.binary())
def test_arbitrary_bytes_are_an_answer_or_malformed(version: int, body: bytes) -> None:
    read_or_refused(version, body)


def read_or_refused(version: int, body: bytes) -> FetchAnswer | None:
    try:
        begun = decode_beginning(version, memoryview(body))
        assert begun.records_at <= len(body) + 4
        assert begun.records_size >= 0
    except MalformedRequest:
        pass
    try:
        return decode_fetch(version, memoryview(body))
    except MalformedRequest:
        return None
