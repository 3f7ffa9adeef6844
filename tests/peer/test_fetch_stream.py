"""An answer that is taken while it comes, from a peer that sends it as a test wants."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.peer.connection import Connection
from moldau.peer.errors import ConnectionLost, MalformedAnswer, Refused
from moldau.peer.fetch_stream import FetchStream
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.fetch.codec import fetch_codec
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.headers import response_frame
from moldau.wire.messages import encode_response
from moldau.wire.primitives import TopicKey
from tests.peer.peers import Slice, listener, read_frame, taken

VERSION = 12
RECORDS = bytes(range(256)) * 300
QUESTION = FetchRequest([("orders", [FetchPartition(0)])])


def framed(correlation_id: int, *partitions: FetchedPartition, code: int = 0) -> bytes:
    topics: list[tuple[TopicKey, list[FetchedPartition]]] = []
    if partitions:
        topics.append(("orders", list(partitions)))
    parts: list[Any] = fetch_codec(VERSION).encode_response(correlation_id, code, 0, topics, [])
    return b"".join(part.data if isinstance(part, Slice) else bytes(part) for part in parts)


def full(**more: Any) -> FetchedPartition:
    return FetchedPartition(0, 0, 50, 40, 3, Slice(RECORDS), **more)


@contextmanager
def answered(*answers: Callable[[int], bytes]) -> Iterator[Connection]:
    """A connection to a peer that greets, answers so many fetches, and hangs up."""

    def serve(connection: socket.socket) -> None:
        asked = int.from_bytes(read_frame(connection)[4:8], "big")
        fetch = {"api_key": int(Api.FETCH), "min_version": 4, "max_version": VERSION}
        values = {"error_code": 0, "api_keys": [fetch]}
        body = encode_response(Api.API_VERSIONS, 3, values)
        connection.sendall(response_frame(Api.API_VERSIONS, 3, asked, body))
        for answer in answers:
            connection.sendall(answer(int.from_bytes(read_frame(connection)[4:8], "big")))

    assert VERSION in range(VERSIONS[Api.FETCH].first, VERSIONS[Api.FETCH].last + 1)
    with listener(serve) as (host, port), Connection(host, port, "test", timeout_s=10) as peer:
        yield peer


@pytest.mark.parametrize("step", [1000, 4096, len(RECORDS)])
def test_records_are_taken_in_any_steps_and_the_connection_is_free_after_them(step: int) -> None:
    with answered(lambda n: framed(n, full()), lambda n: framed(n, full())) as connection:
        for _ in range(2):
            stream = connection.receive_fetch(connection.send_fetch(QUESTION))
            assert stream.partition.high_watermark == 50
            found = bytearray()
            while stream.left:
                assert connection.unanswered == 1
                room = memoryview(bytearray(min(step, stream.left)))
                stream.fill(room)
                found += room
            assert found == RECORDS
            assert connection.unanswered == 0


def test_a_long_list_of_aborted_transactions_before_the_records_is_read_whole() -> None:
    aborted = [(number, number) for number in range(5000)]
    with answered(lambda n: framed(n, full(aborted=aborted))) as connection:
        stream = connection.receive_fetch(connection.send_fetch(QUESTION))
        assert stream.partition.aborted == aborted
        assert taken(stream) == RECORDS


def test_an_answer_without_records_leaves_the_connection_free() -> None:
    with answered(lambda n: framed(n, FetchedPartition(0, 6, leader=(4, 2)))) as connection:
        stream = connection.receive_fetch(connection.send_fetch(QUESTION))
        assert (stream.partition.error, stream.left, connection.unanswered) == (6, 0, 0)


def test_a_connection_that_breaks_in_the_middle_is_lost_and_closed() -> None:
    with answered(lambda n: framed(n, full())[:-1000]) as connection:
        stream = connection.receive_fetch(connection.send_fetch(QUESTION))
        stream.fill(memoryview(bytearray(50_000)))
        with pytest.raises(ConnectionLost, match="closed the connection"):
            taken(stream)
        assert not connection.is_open


def test_a_request_that_is_refused_as_such_is_an_error_and_the_connection_stays() -> None:
    with answered(lambda n: framed(n, code=71), lambda n: framed(n, full())) as connection:
        with pytest.raises(Refused, match="INVALID_FETCH_SESSION_EPOCH"):
            connection.receive_fetch(connection.send_fetch(QUESTION))
        assert taken(connection.receive_fetch(connection.send_fetch(QUESTION))) == RECORDS


def test_a_throttled_request_is_to_be_repeated_on_the_same_connection() -> None:
    with answered(lambda n: framed(n), lambda n: framed(n, full())) as connection:
        with pytest.raises(Refused, match="THROTTLING_QUOTA_EXCEEDED") as caught:
            connection.receive_fetch(connection.send_fetch(QUESTION))
        assert caught.value.is_retriable
        assert taken(connection.receive_fetch(connection.send_fetch(QUESTION))) == RECORDS


def test_an_answer_for_other_partitions_is_malformed() -> None:
    with answered(lambda n: framed(n, full(), full())) as connection:
        with pytest.raises(MalformedAnswer, match="2 partitions instead of one"):
            connection.receive_fetch(connection.send_fetch(QUESTION))
        assert not connection.is_open


def test_records_that_reach_beyond_the_answer_are_malformed() -> None:
    def answer(correlation_id: int) -> bytes:
        whole = framed(correlation_id, full())
        return (len(whole) - 4 - 1000).to_bytes(4, "big") + whole[4:-1000]

    with answered(answer) as connection, pytest.raises(MalformedAnswer, match="extend beyond it"):
        connection.receive_fetch(connection.send_fetch(QUESTION))


@given(st.binary(max_size=300), st.integers(0, 300), st.lists(st.integers(0, 80)))
def test_every_byte_comes_once_and_in_order(data: bytes, here: int, steps: list[int]) -> None:
    to_come = [memoryview(data[here:])]
    finished: list[bool] = []

    def take(room: memoryview) -> None:
        room[:] = to_come[0][: len(room)]
        to_come[0] = to_come[0][len(room) :]

    first = memoryview(data)[:here]
    stream = FetchStream(FetchedPartition(0), len(data), first, take, lambda: finished.append(True))
    found = bytearray()
    for step in [*steps, len(data)]:
        room = memoryview(bytearray(min(step, stream.left)))
        stream.fill(room)
        found += room
    assert found == data
    assert (stream.left, finished) == (0, [True])
