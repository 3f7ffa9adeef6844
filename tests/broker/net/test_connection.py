"""One connection: frames however they arrive, answers in order, and no more memory than is fair."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.primitives import INT32
from tests.broker.net.connections import connections
from tests.broker.wire_client import (
    Client,
    fetch_values,
    inside,
    make_batch,
    produce_values,
    read_records,
    until_parked,
)

# Frames and order


def test_a_request_may_arrive_byte_by_byte(client: Client) -> None:
    topic = client.create()
    for frame in (
        client.frame(Api.METADATA, topics=[{"name": topic}]),
        client.frame(Api.PRODUCE, 9, **produce_values({topic: {0: make_batch(b"x")}})),
    ):
        for place in range(len(frame)):
            client.send_bytes(frame[place : place + 1])
    assert client.receive().topics[0].name == topic
    assert client.receive().responses[0].partition_responses[0].base_offset == 0


def test_many_requests_may_arrive_at_once(client: Client) -> None:
    topic = client.create()
    frames = [
        client.frame(Api.PRODUCE, 9, **produce_values({topic: {0: make_batch(b"%d" % place)}}))
        for place in range(2000)
    ]
    client.send_bytes(b"".join(frames))
    offsets = [client.receive().responses[0].partition_responses[0].base_offset for _ in frames]
    assert offsets == list(range(2000))
    assert client.values(topic) == [b"%d" % place for place in range(2000)]


def test_large_requests_and_small_ones_share_a_connection(client: Client) -> None:
    topic = client.create(max_message_bytes=str(20 << 20))
    sizes = [10, 9_000_000, 16_384, 100, 3_000_000, 1, 16_300, 2 << 20]
    values = [bytes([place]) * size for place, size in enumerate(sizes)]
    for value in values:
        client.send_produce(topic, make_batch(value))
    for _ in values:
        assert client.receive().responses[0].partition_responses[0].error_code == 0
    assert client.values(topic) == values


def test_answers_keep_the_order_of_requests_behind_a_parked_fetch(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    moldau_broker.create_topic("quiet")
    with Client(moldau_broker) as client, Client(moldau_broker) as other:
        client.send_fetch({"quiet": [0]}, max_wait=60_000)
        client.send(Api.METADATA, topics=[{"name": "t"}])
        client.send_produce("t", make_batch(b"x"))
        client.send(Api.API_VERSIONS, 0)
        client.send_fetch({"t": [0]})
        client.send(
            Api.LIST_OFFSETS,
            topics=[
                {
                    "name": "t",
                    "partitions": [
                        {"partition_index": 0, "timestamp": 0, "current_leader_epoch": -1}
                    ],
                }
            ],
        )
        client.send(Api.CREATE_TOPICS, topics=[])
        # They are handled meanwhile, but no answer overtakes the first.
        until(lambda: other.end_of("t") == 1, "the write")
        client.expect_nothing()
        other.produce("quiet", make_batch(b"wake up"))
        assert len(read_records(client.receive().responses[0].partitions[0].records)) == 1
        assert client.receive().topics[0].name == "t"
        assert client.receive().responses[0].partition_responses[0].base_offset == 0
        assert client.receive().error_code == 0
        assert len(read_records(client.receive().responses[0].partitions[0].records)) == 1
        assert client.receive().topics[0].partitions[0].offset == 0
        assert client.receive().topics == ()


def test_who_writes_and_reads_at_once_finds_what_it_wrote(client: Client) -> None:
    topic = client.create()
    wanted = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    frames = []
    for value in (b"x", b"y"):
        frames += [
            client.frame(Api.PRODUCE, 9, **produce_values({topic: {0: make_batch(value)}})),
            client.frame(Api.FETCH, 12, **fetch_values({topic: [0]})),
            client.frame(Api.LIST_OFFSETS, topics=[{"name": topic, "partitions": [wanted]}]),
        ]
    client.send_bytes(b"".join(frames))
    for count in (1, 2):
        assert client.receive().responses[0].partition_responses[0].base_offset == count - 1
        assert len(read_records(client.receive().responses[0].partitions[0].records)) == count
        assert client.receive().topics[0].partitions[0].offset >= count


def test_writes_without_acks_behind_a_parked_fetch_take_no_place(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        client.send_fetch({"t": [{"partition": 0, "fetch_offset": 0}]}, max_wait=60_000)
        client.send_produce("t", make_batch(b"x"), acks=0)
        asked = client._asked
        asked.pop()
        client.send(Api.API_VERSIONS, 0)
        # The write woke the fetch of its own connection.
        assert len(read_records(client.receive().responses[0].partitions[0].records)) == 1
        assert client.receive().error_code == 0


# Ends


def test_who_closes_the_sending_half_still_gets_every_answer(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        client.send_produce("t", make_batch(b"x"))
        client.send_fetch({"t": [{"partition": 0, "fetch_offset": 1}]}, max_wait=2**31 - 1)
        client.send(Api.CREATE_TOPICS, topics=[])
        client.socket.shutdown(socket.SHUT_WR)
        assert client.receive().responses[0].partition_responses[0].error_code == 0
        assert client.receive().responses[0].partitions[0].error_code == 0
        assert client.receive().topics == ()
        assert client.is_closed()
    until(lambda: not connections(moldau_broker), "the connection to be gone")


def test_a_connection_that_goes_leaves_nothing_behind(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    tasks = inside(moldau_broker, lambda server: len(server.node._tasks))
    for leave in (Client.close, Client.reset):
        clients = [Client(moldau_broker) for _ in range(10)]
        for client in clients:
            client.send_fetch({"t": [0]}, max_wait=2**31 - 1)
            client.send(Api.METADATA, topics=None)
            client.send_bytes(INT32.pack(1_000_000) + bytes(50_000))
        partition = inside(moldau_broker, lambda server: server.partitions["t", 0])
        until_parked(partition, 10)
        until(
            lambda: inside(moldau_broker, lambda server: server.connections.request_memory.taken),
            "buffers",
        )
        for client in clients:
            leave(client)
        until(lambda: not connections(moldau_broker), "the connections to be gone")
        assert not partition.waiters
        assert inside(moldau_broker, lambda server: server.connections.request_memory.taken) == 0
        assert inside(moldau_broker, lambda server: len(server.node._tasks)) == tasks


def test_answers_that_come_after_the_client_has_gone_do_no_harm(moldau_broker: Broker) -> None:
    for place in range(30):
        client = Client(moldau_broker)
        client.send(Api.METADATA, topics=[{"name": f"t{place}"}], allow_auto_topic_creation=True)
        client.reset()
    with Client(moldau_broker) as client:
        client.create("after")
        until(lambda: len(connections(moldau_broker)) == 1, "the connections to be gone")


@pytest.mark.moldau({"connections.max.idle.ms": 1000})
def test_idle_connections_are_closed_and_busy_ones_are_not(moldau_broker: Broker) -> None:
    server = moldau_broker._server
    assert server is not None
    with Client(moldau_broker) as idle, Client(moldau_broker) as busy:
        idle.ask(Api.API_VERSIONS, 0)
        idle.send_bytes(b"\x00\x00")

        def tend() -> int:
            busy.ask(Api.API_VERSIONS, 0)
            moldau_broker._call(server._upkeep.tend_connections())
            return len(connections(moldau_broker)) == 1

        until(tend, "the idle connection to be closed")
        assert idle.is_closed()
        assert busy.ask(Api.API_VERSIONS, 0).error_code == 0


@pytest.mark.moldau({"max.connections": 5})
def test_connections_beyond_the_limit_are_closed(moldau_broker: Broker) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(moldau_broker)) for _ in range(5)]
        for client in clients:
            client.ask(Api.API_VERSIONS, 0)
        for _ in range(20):
            with Client(moldau_broker) as refused:
                assert refused.is_closed()
        for client in clients:
            assert client.ask(Api.API_VERSIONS, 0).error_code == 0
        clients.pop().close()
        until(lambda: len(connections(moldau_broker)) == 4, "room")
        with Client(moldau_broker) as welcome:
            assert welcome.ask(Api.API_VERSIONS, 0).error_code == 0
