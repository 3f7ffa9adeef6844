"""The asyncio face, on values and against a real broker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from moldau.peer.aio import AsyncConnection
from moldau.peer.errors import ConnectionLost
from moldau.peer.view import ClusterView
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from tests.peer.peers import listener, partitions_of, read_frame
from tests.peer.test_cluster import last_offset, produce

WITHIN_S = 60


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, WITHIN_S))


def test_questions_may_be_under_way_together(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("orders")
    produce(moldau_broker, "orders", 10)

    async def ask() -> None:
        connection = await AsyncConnection.connect(moldau_broker.host, moldau_broker.port, "test")
        metadata = await connection.ask(Api.METADATA, {"topics": [{"name": "orders"}]})
        topic_id = ClusterView.of(metadata).topics["orders"].id
        assert topic_id is not None
        questions = [
            FetchRequest([(topic_id, [FetchPartition(0, fetch_offset=offset)])])
            for offset in range(10)
        ]
        answers = await asyncio.gather(*(connection.fetch(question) for question in questions))
        assert [last_offset(partitions_of(answer)[0].records) for answer in answers] == [9] * 10
        connection.close()
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            await connection.ask(Api.METADATA, {"topics": None})

    run(ask())


def test_an_asker_that_goes_away_does_not_shift_the_answers(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("orders")

    async def ask() -> None:
        connection = await AsyncConnection.connect(moldau_broker.host, moldau_broker.port, "test")
        view = ClusterView.of(await connection.ask(Api.METADATA, {"topics": None}))
        topic_id = view.topics["orders"].id
        assert topic_id is not None
        wanted = (topic_id, [FetchPartition(0)])
        connection.fetch(FetchRequest([wanted], max_wait_ms=200)).cancel()
        assert ClusterView.of(await connection.ask(Api.METADATA, {"topics": None})).nodes
        connection.close()

    run(ask())


def test_those_who_wait_learn_that_the_broker_stopped(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("orders")

    async def ask() -> None:
        connection = await AsyncConnection.connect(moldau_broker.host, moldau_broker.port, "test")
        view = ClusterView.of(await connection.ask(Api.METADATA, {"topics": None}))
        topic_id = view.topics["orders"].id
        assert topic_id is not None
        wanted = (topic_id, [FetchPartition(0)])
        parked = connection.fetch(FetchRequest([wanted], max_wait_ms=15_000))
        await asyncio.sleep(0)
        await asyncio.to_thread(moldau_broker.stop)
        # A broker that stops may still answer what it has parked, but nothing after that.
        questions = (parked, connection.ask(Api.METADATA, {"topics": None}))
        *_, last = await asyncio.gather(*questions, return_exceptions=True)
        assert isinstance(last, ConnectionLost)

    run(ask())


def hang_up(connection: socket.socket) -> None:
    read_frame(connection)


def talk_nonsense(connection: socket.socket) -> None:
    read_frame(connection)
    connection.sendall(b"\0\0\0\x08" + b"nonsense")


def claim_too_much(connection: socket.socket) -> None:
    read_frame(connection)
    connection.sendall(b"\x7f\xff\xff\xff")


def say_nothing(connection: socket.socket) -> None:
    read_frame(connection)
    connection.recv(1)


@pytest.mark.parametrize("serve", [hang_up, talk_nonsense, claim_too_much, say_nothing])
def test_a_peer_that_is_no_broker_is_a_lost_connection(
    serve: Callable[[socket.socket], None],
) -> None:
    async def ask(host: str, port: int) -> None:
        with pytest.raises(ConnectionLost):
            await AsyncConnection.connect(host, port, "test", timeout_s=0.5)

    with listener(serve) as address:
        run(ask(*address))


def test_nobody_there_is_a_lost_connection() -> None:
    async def ask() -> None:
        with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
            await AsyncConnection.connect("127.0.0.1", 1, "test")

    run(ask())
