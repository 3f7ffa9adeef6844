"""The hand-written codecs of Produce and Fetch agree with kio's schemas in every version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.wire.apis import Api
from moldau.wire.fetch.codec import fetch_codec
from moldau.wire.fetch.request import FetchPartition
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.messages import decode_response, encode_request
from moldau.wire.primitives import Endpoint, MalformedRequest
from moldau.wire.produce import PartitionResult, produce_codec
from tests.examples import EXAMPLES

TOPIC_ID = UUID(int=7)
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)


class Records:
    """Stands for a slice of a file: it has a size, and here it can say its bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)


def joined(parts: list[Any]) -> memoryview:
    return memoryview(
        b"".join(part.data if isinstance(part, Records) else bytes(part) for part in parts)
    )


def produce_request(version: int, records: bytes | None = b"r" * 300) -> memoryview:
    partitions = [{"index": 3, "records": records}, {"index": 4, "records": None}]
    topic = {"name": "orders", "topic_id": TOPIC_ID, "partition_data": partitions}
    values = {"transactional_id": "tx", "acks": -1, "timeout": 1500, "topic_data": [topic]}
    return memoryview(encode_request(Api.PRODUCE, version, values))


def fetch_request(version: int) -> memoryview:
    partition = {
        "partition": 1,
        "current_leader_epoch": 4,
        "fetch_offset": 50,
        "last_fetched_epoch": 3,
        "log_start_offset": 8,
        "partition_max_bytes": 77,
        "replica_directory_id": TOPIC_ID,
    }
    values = {
        "replica_id": 5,
        "replica_state": {"replica_id": 5, "replica_epoch": 9},
        "cluster_id": "c",
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": 1,
        "session_id": 9,
        "session_epoch": 2,
        "topics": [{"topic": "orders", "topic_id": TOPIC_ID, "partitions": [partition]}],
        "forgotten_topics_data": [{"topic": "orders", "topic_id": TOPIC_ID, "partitions": [1, 2]}],
        "rack_id": "r",
    }
    return memoryview(encode_request(Api.FETCH, version, values))


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_produce_request_is_read_in_place(version: int) -> None:
    frame = produce_request(version)
    request = produce_codec(version).decode(frame, 0)
    assert (request.transactional_id, request.acks, request.timeout_ms) == ("tx", -1, 1500)
    [(key, partitions)] = request.topics
    assert key == (TOPIC_ID if version >= 13 else "orders")
    assert [index for index, _ in partitions] == [3, 4]
    first, second = (records for _, records in partitions)
    assert first is not None
    assert first.tobytes() == b"r" * 300
    assert first.obj is frame.obj
    assert second is None


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_produce_response_is_what_kio_reads(version: int) -> None:
    key = TOPIC_ID if version >= 13 else "orders"
    refused = PartitionResult(4, error=6, message="nö", leader=(1, 2))
    results = [PartitionResult(3, 0, 77, 88, 99), refused]
    frame = produce_codec(version).encode(42, [(key, results)], [(1, "h", 9092, "r")])
    size, correlation_id = int.from_bytes(frame[:4]), int.from_bytes(frame[4:8])
    assert (size, correlation_id) == (len(frame) - 4, 42)
    response = decode_response(Api.PRODUCE, version, memoryview(frame)[8 + (version >= 9) :])
    first, second = response.responses[0].partition_responses
    assert (first.index, first.error_code, first.base_offset) == (3, 0, 77)
    assert (second.index, second.error_code) == (4, 6)
    if version >= 5:
        assert first.log_start_offset == 99
    if version >= 8:
        assert second.error_message == "nö"
    if version >= 10:
        assert second.current_leader.leader_id == 1
        assert response.node_endpoints[0].port == 9092


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_request_is_read(version: int) -> None:
    request = fetch_codec(version).decode_request(fetch_request(version), 0)
    key = TOPIC_ID if version >= 13 else "orders"
    wanted = FetchPartition(
        partition=1,
        current_leader_epoch=4 if version >= 9 else -1,
        fetch_offset=50,
        last_fetched_epoch=3 if version >= 12 else -1,
        log_start=8 if version >= 5 else -1,
        max_bytes=77,
    )
    assert request.topics == [(key, [wanted])]
    assert request.replica_id == 5
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 1000)
    assert request.isolation_level == 1
    session = (request.session_id, request.session_epoch, request.forgotten)
    assert session == ((9, 2, [(key, [1, 2])]) if version >= 7 else (0, -1, []))
    assert request.rack_id == ("r" if version >= 11 else "")


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_response_is_what_kio_reads(version: int) -> None:
    key = TOPIC_ID if version >= 13 else "orders"
    partitions = [
        FetchedPartition(1, 0, 50, 40, 30, Records(b"x" * 500), aborted=[(1, 2)]),
        FetchedPartition(2, 6, leader=(1, 2), diverging=(3, 4)),
        FetchedPartition(3, 0, 5, 5, 0, Records(b"y")),
    ]
    endpoints: list[Endpoint] = [(1, "h", 9092, None)]
    frame = joined(fetch_codec(version).encode_response(42, 0, 9, [(key, partitions)], endpoints))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    response = decode_response(Api.FETCH, version, frame[8 + (version >= 12) :])
    first, second, third = response.responses[0].partitions
    assert (first.high_watermark, first.last_stable_offset) == (50, 40)
    assert (first.records, third.records) == (b"x" * 500, b"y")
    assert (first.aborted_transactions[0].first_offset, third.aborted_transactions) == (2, None)
    assert (second.error_code, second.records) == (6, b"")
    if version >= 7:
        assert response.session_id == 9
    if version >= 12:
        assert second.diverging_epoch.end_offset == 4
        assert second.current_leader.leader_epoch == (2 if version >= 16 else -1)
    if version >= 16:
        assert response.node_endpoints[0].host == "h"


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_a_damaged_hot_request_is_a_request_or_malformed(data: st.DataObject) -> None:
    decode: Callable[[memoryview, int], object]
    if data.draw(st.booleans()):
        version = data.draw(st.sampled_from(PRODUCE_VERSIONS))
        whole, decode = produce_request(version), produce_codec(version).decode
    else:
        version = data.draw(st.sampled_from(FETCH_VERSIONS))
        whole, decode = fetch_request(version), fetch_codec(version).decode_request
    body = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(body)))
    try:
        decode(memoryview(bytes(body[:end])), 0)
    except MalformedRequest:
        pass


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(PRODUCE_VERSIONS), st.sampled_from(FETCH_VERSIONS), st.binary())
def test_arbitrary_bytes_are_a_hot_request_or_malformed(
    produce_version: int, fetch_version: int, body: bytes
) -> None:
    for decode in (
        produce_codec(produce_version).decode,
        fetch_codec(fetch_version).decode_request,
    ):
        try:
            decode(memoryview(body), 0)
        except MalformedRequest:
            pass
