"""Fetch on both sides: what one writes the other reads, and damaged bytes are refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.wire.apis import VERSIONS, Api
from moldau.wire.fetch.codec import fetch_codec
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchAnswer, FetchedPartition
from moldau.wire.primitives import MalformedRequest
from tests.examples import EXAMPLES
from tests.peer.peers import Slice

FETCH = VERSIONS[Api.FETCH]
ALL_VERSIONS = range(FETCH.first, FETCH.last + 1)
ID = UUID(int=77)


FULL = FetchedPartition(
    0, 0, 50, 40, 3, Slice(b"x" * 300), aborted=[(9, 2), (8, 30)], preferred_replica=5
)
EMPTY = FetchedPartition(1, 6, leader=(4, 2), diverging=(1, 17))


def answer(version: int, *partitions: FetchedPartition, code: int = 0) -> bytes:
    """The body of a response as a broker of ours writes it."""
    codec = fetch_codec(version)
    key = ID if codec.by_id else "topic"
    topics = [(key, list(partitions or (FULL, EMPTY)))]
    parts: list[Any] = codec.encode_response(5, code, 9, topics, [(4, "h", 1, None)])
    whole = b"".join(part.data if isinstance(part, Slice) else bytes(part) for part in parts)
    return whole[9 if codec.flexible else 8 :]


def values_of(partition: FetchedPartition) -> dict[str, Any]:
    return {name: getattr(partition, name) for name in FetchedPartition.__slots__}


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_an_answer_of_every_version_is_read_with_its_records_in_place(version: int) -> None:
    body = memoryview(answer(version))
    read = fetch_codec(version).decode_response(body)
    ((key, (first, second)),) = read.topics
    assert key == (ID if version >= 13 else "topic")
    assert (read.throttle_ms, read.error, read.session_id) == (0, 0, 9 if version >= 7 else 0)
    assert (first.high_watermark, first.last_stable) == (50, 40)
    assert first.log_start == (3 if version >= 5 else -1)
    assert first.aborted == [(9, 2), (8, 30)]
    assert first.preferred_replica == (5 if version >= 11 else -1)
    assert first.records == b"x" * 300
    assert first.records.obj is body.obj
    assert (second.index, second.error, second.records) == (1, 6, None)
    if version >= 12:
        assert second.diverging == (1, 17)
        assert second.leader == ((4, 2) if version >= 16 else None)


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("replica_id", [-1, 3])
def test_a_request_of_every_version_is_what_the_broker_understands(
    version: int, replica_id: int
) -> None:
    codec = fetch_codec(version)
    key = ID if codec.by_id else "topic"
    wanted = [
        FetchPartition(4, 7, 100, 3, 9, 5000),
        FetchPartition(5, fetch_offset=0, max_bytes=6000),
    ]
    request = FetchRequest(
        [(key, wanted)], max_wait_ms=10, min_bytes=2, max_bytes=9000, isolation_level=1,
        replica_id=replica_id, replica_epoch=12, session_id=3, session_epoch=4,
        forgotten=[(key, [1, 2])], rack_id="r",
    )  # fmt: skip
    read = codec.decode_request(memoryview(codec.encode_request(request)), 0)
    if version >= 15 and replica_id >= 0:
        assert read == request
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes) == (10, 2, 9000)
    assert (read.isolation_level, read.replica_id) == (1, replica_id)
    assert read.forgotten == ([(key, [1, 2])] if version >= 7 else [])
    ((read_key, partitions),) = read.topics
    assert read_key == key
    assert [(p.partition, p.fetch_offset, p.max_bytes) for p in partitions] == [
        (4, 100, 5000),
        (5, 0, 6000),
    ]
    assert partitions[0].current_leader_epoch == (7 if version >= 9 else -1)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_what_stands_before_the_records_is_read_before_they_are_there(version: int) -> None:
    body = memoryview(answer(version, FULL))
    codec = fetch_codec(version)
    ((_, (whole,)),) = codec.decode_response(body).topics
    begun = codec.decode_beginning(body)
    assert begun.partition is not None
    assert values_of(begun.partition) == {**values_of(whole), "records": None}
    assert (begun.error, begun.records_size) == (0, 300)
    assert body[begun.records_at :][:300] == b"x" * 300
    early = codec.decode_beginning(body[: begun.records_at])
    assert early.partition is not None
    assert values_of(early.partition) == values_of(begun.partition)
    assert early[2:] == begun[2:]
    for size in range(begun.records_at):
        with pytest.raises(MalformedRequest):
            codec.decode_beginning(body[:size])


@pytest.mark.parametrize("version", [FETCH.first, 12, FETCH.last])
def test_an_answer_for_more_than_one_partition_has_no_beginning(version: int) -> None:
    with pytest.raises(MalformedRequest, match="2 partitions instead of one"):
        fetch_codec(version).decode_beginning(memoryview(answer(version)))


def test_an_answer_that_refuses_the_request_as_such_says_so() -> None:
    begun = fetch_codec(FETCH.last).decode_beginning(memoryview(answer(FETCH.last, code=71)))
    assert (begun.error, begun.partition, begun.records_size) == (71, None, 0)


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_damaged_answer_is_an_answer_or_malformed(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(ALL_VERSIONS))
    body = bytearray(answer(version))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read_or_refused(version, bytes(body[: data.draw(st.integers(0, len(body)))]))


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(ALL_VERSIONS), st.binary())
def test_arbitrary_bytes_are_an_answer_or_malformed(version: int, body: bytes) -> None:
    read_or_refused(version, body)


def read_or_refused(version: int, body: bytes) -> FetchAnswer | None:
    try:
        begun = fetch_codec(version).decode_beginning(memoryview(body))
        assert begun.records_at <= len(body) + 4
        assert begun.records_size >= 0
    except MalformedRequest:
        pass
    try:
        return fetch_codec(version).decode_response(memoryview(body))
    except MalformedRequest:
        return None
