"""The hand-written codec of ConsumerGroupHeartbeat agrees with kio's schemas, on any bytes."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moldau.wire import messages
from moldau.wire.apis import Api
from moldau.wire.consumer_heartbeat import (
    FIRST,
    LAST,
    ConsumerHeartbeatRequest,
    OwnedTopic,
    read_consumer_heartbeat,
)
from moldau.wire.messages import decode_response, encode_request, encode_response, milliseconds
from moldau.wire.primitives import MOST_ELEMENTS, MalformedRequest
from moldau.wire.schemas import request_schema

API = Api.CONSUMER_GROUP_HEARTBEAT
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(max_size=200)
VERSIONS = st.integers(FIRST, LAST)
REGEX = 1

owned = st.fixed_dictionaries(
    {
        "topic_id": st.none() | st.uuids().filter(lambda id: id.int),
        "partitions": st.lists(INT32, max_size=4),
    }
)
requests = st.fixed_dictionaries(
    {
        "group_id": TEXT,
        "member_id": TEXT,
        "member_epoch": INT32,
        "instance_id": st.none() | TEXT,
        "rack_id": st.none() | TEXT,
        "rebalance_timeout": INT32,
        "subscribed_topic_names": st.none() | st.lists(TEXT, max_size=4),
        "subscribed_topic_regex": st.none() | TEXT,
        "server_assignor": st.none() | TEXT,
        "topic_partitions": st.none() | st.lists(owned, max_size=4),
    }
)


def by_kio(version: int, body: bytes) -> Any:
    read = messages._read(request_schema(API, version), memoryview(body), MOST_ELEMENTS)
    return plain(read, milliseconds(read.rebalance_timeout))


def by_hand(version: int, body: bytes) -> Any:
    read = read_consumer_heartbeat(version, memoryview(body))
    return plain(read, read.rebalance_timeout_ms)


def plain(read: Any, timeout_ms: int) -> Any:
    return ConsumerHeartbeatRequest(
        read.group_id,
        read.member_id,
        read.member_epoch,
        read.instance_id,
        read.rack_id,
        timeout_ms,
        read.subscribed_topic_names,
        getattr(read, "subscribed_topic_regex", None),
        read.server_assignor,
        None
        if read.topic_partitions is None
        else tuple(
            OwnedTopic(each.topic_id, tuple(each.partitions)) for each in read.topic_partitions
        ),
    )


@given(VERSIONS, requests)
def test_a_request_is_read_as_kio_reads_it(version: int, values: dict[str, Any]) -> None:
    body = encode_request(API, version, values)
    found = by_hand(version, body)
    assert found == by_kio(version, body)
    assert found.subscribed_topic_regex == (
        values["subscribed_topic_regex"] if version >= REGEX else None
    )


@given(VERSIONS, requests, st.data())
def test_damaged_requests_are_refused_where_kio_refuses_them(
    version: int, values: dict[str, Any], data: st.DataObject
) -> None:
    body = bytearray(encode_request(API, version, values))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body
    _check_same(version, bytes(body))


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


@given(
    VERSIONS,
    st.integers(0, 120),
    st.none() | TEXT,
    st.none() | TEXT,
    INT32,
    st.none() | st.dictionaries(st.uuids().filter(lambda id: id.int), st.lists(INT32, max_size=4)),
)
def test_a_response_is_what_kio_reads(
    version: int,
    error: int,
    message: str | None,
    member_id: str | None,
    epoch: int,
    told: dict[Any, list[int]] | None,
) -> None:
    topics = [{"topic_id": id, "partitions": some} for id, some in (told or {}).items()]
    values = {
        "throttle_time": 7,
        "error_code": error,
        "error_message": message,
        "member_id": member_id,
        "member_epoch": epoch,
        "heartbeat_interval": 5000,
        "assignment": None if told is None else {"topic_partitions": topics},
    }
    body = encode_response(API, version, values)
    answer = decode_response(API, version, memoryview(body))
    assert milliseconds(answer.throttle_time) == 7
    assert (int(answer.error_code), answer.error_message) == (error, message)
    assert (answer.member_id, answer.member_epoch) == (member_id, epoch)
    assert milliseconds(answer.heartbeat_interval) == 5000
    if told is None:
        assert answer.assignment is None
    else:
        found = {
            each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions
        }
        assert found == told
