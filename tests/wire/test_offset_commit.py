"""The hand-written codec of OffsetCommit agrees with kio's schemas, on any bytes."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moldau.wire import messages
from moldau.wire.apis import Api
from moldau.wire.messages import decode_response, encode_request, encode_response
from moldau.wire.offset_commit import FIRST, LAST, read_offset_commit
from moldau.wire.primitives import MOST_ELEMENTS, MalformedRequest
from moldau.wire.schemas import request_schema

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=200)
VERSIONS = st.integers(FIRST, LAST)
TOPIC_IDS = 10

partitions = st.fixed_dictionaries(
    {
        "partition_index": INT32,
        "committed_offset": INT64,
        "committed_leader_epoch": INT32,
        "committed_metadata": st.none() | TEXT,
    }
)
topics = st.fixed_dictionaries(
    {
        "name": TEXT,
        "topic_id": st.none() | st.uuids().filter(lambda id: id.int),
        "partitions": st.lists(partitions, max_size=4),
    }
)
requests = st.fixed_dictionaries(
    {
        "group_id": TEXT,
        "generation_id_or_member_epoch": INT32,
        "member_id": TEXT,
        "group_instance_id": st.none() | TEXT,
        "topics": st.lists(topics, max_size=4),
    }
)


def by_kio(version: int, body: bytes) -> Any:
    schema = request_schema(Api.OFFSET_COMMIT, version)
    return plain(messages._read(schema, memoryview(body), MOST_ELEMENTS), version)


def by_hand(version: int, body: bytes) -> Any:
    return plain(read_offset_commit(version, memoryview(body)), version)


def plain(request: Any, version: int) -> Any:
    return (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        [
            (
                topic.topic_id if version >= TOPIC_IDS else topic.name,
                [
                    (
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@given(VERSIONS, requests)
def test_a_request_is_read_as_kio_reads_it(version: int, values: dict[str, Any]) -> None:
    body = encode_request(Api.OFFSET_COMMIT, version, values)
    assert by_hand(version, body) == by_kio(version, body)


@given(VERSIONS, requests, st.data())
def test_damaged_requests_are_refused_where_kio_refuses_them(
    version: int, values: dict[str, Any], data: st.DataObject
) -> None:
    body = bytearray(encode_request(Api.OFFSET_COMMIT, version, values))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body
    _check_same(version, bytes(body))


@pytest.mark.parametrize("version", [FIRST, LAST])
def test_a_request_that_ends_anywhere_is_refused(version: int) -> None:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "x"}
    topics = [{"name": "t", "topic_id": uuid4(), "partitions": [partition]}]
    body = encode_request(Api.OFFSET_COMMIT, version, {"group_id": "g", "topics": topics})
    for end in range(len(body)):
        with pytest.raises(MalformedRequest):
            by_hand(version, body[:end])


@given(VERSIONS, st.binary(max_size=100))
def test_any_bytes_are_read_or_refused_as_by_kio(version: int, body: bytes) -> None:
    _check_same(version, body)


def _check_same(version: int, body: bytes) -> None:
    try:
        wanted = by_kio(version, body)
    except MalformedRequest:
        with pytest.raises(MalformedRequest):
            by_hand(version, body)
    else:
        assert by_hand(version, body) == wanted


@pytest.mark.parametrize("version", range(FIRST, LAST + 1))
@given(st.lists(st.tuples(TEXT, st.uuids(), st.lists(st.tuples(INT32, st.integers(0, 120))))))
def test_a_response_is_what_kio_reads(
    version: int, told: list[tuple[str, UUID, list[tuple[int, int]]]]
) -> None:
    values = {
        "throttle_time": 7,
        "topics": [
            {
                "name": name,
                "topic_id": id,
                "partitions": [
                    {"partition_index": index, "error_code": code} for index, code in some
                ],
            }
            for name, id, some in told
        ],
    }
    body = encode_response(Api.OFFSET_COMMIT, version, values)
    answer = decode_response(Api.OFFSET_COMMIT, version, memoryview(body))
    assert answer.throttle_time.total_seconds() == 0.007
    assert [
        [(each.partition_index, int(each.error_code)) for each in topic.partitions]
        for topic in answer.topics
    ] == [some for _, _, some in told]
    names = [topic.topic_id if version >= TOPIC_IDS else topic.name for topic in answer.topics]
    assert names == [id if version >= TOPIC_IDS else name for name, id, _ in told]
