"""Records on their way from a file to a client that reads slowly, from a file that has changed, or
from a disk that has to be asked first."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from moldau.broker.net.connection import Connection
from moldau.broker.net.outputs import output
from moldau.broker.net.outputs.page_cache import warm
from moldau.log.files.open_files import Slice
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, inside, make_batch, read_records

VALUES = [bytes([place]) * 1_000_000 for place in range(16)]


@pytest.fixture
def broker(moldau_broker: Broker) -> Broker:
    """A broker with a topic that is larger than a socket's buffers."""
    moldau_broker.create_topic("deep")
    with Client(moldau_broker) as client:
        for value in VALUES:
            client.produce("deep", make_batch(value))
    until(lambda: not connections(moldau_broker), "the writer to be gone")
    return moldau_broker


def connections(broker: Broker) -> list[Connection]:
    return inside(broker, lambda server: list(server.connections))


def ask_for_all(client: Client) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    client.send_fetch({"deep": [{"partition": 0, "partition_max_bytes": 32 << 20}]})


def until_backed_up(broker: Broker) -> None:
    (connection,) = connections(broker)
    until(lambda: inside(broker, lambda _: connection._output.backed_up), "the socket to be full")


def receive_all(client: Client) -> None:
    records = read_records(client.receive().responses[0].partitions[0].records)
    assert [each.value for each in records] == VALUES


def test_a_topic_that_is_deleted_while_it_is_sent_arrives_whole(broker: Broker) -> None:
    with Client(broker) as slow:
        ask_for_all(slow)
        until_backed_up(broker)
        with Client(broker) as admin:
            admin.ask(Api.DELETE_TOPICS, 1, topic_names=["deep"])
            until(lambda: not list(broker.data_dir.glob("deep-0*")), "the files to be gone")
        receive_all(slow)


def test_a_file_that_is_cut_while_it_is_sent_ends_the_connection(broker: Broker) -> None:
    with Client(broker) as slow:
        ask_for_all(slow)
        until_backed_up(broker)
        (segment,) = broker.data_dir.glob("deep-0/*.log")
        os.truncate(segment, 15_000_000)
        with pytest.raises(ConnectionError):
            slow.receive()
    until(lambda: not connections(broker), "the connection to be gone")


def test_answers_keep_their_order_behind_records_that_a_thread_has_to_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = threading.Event()
    may_read = threading.Event()

    def wait_and_warm(piece: Slice) -> None:
        reading.set()
        assert may_read.wait(60)
        warm(piece)

    monkeypatch.setattr(output, "is_warm", lambda *place: False)
    monkeypatch.setattr(output, "warm", wait_and_warm)
    with Client(broker) as client, Client(broker) as other:
        ask_for_all(client)
        client.send(Api.METADATA, topics=[{"name": "deep"}])
        assert reading.wait(60)
        # Nobody else waits for the disk.
        assert other.ask(Api.API_VERSIONS, 0).error_code == 0
        may_read.set()
        receive_all(client)
        assert client.receive().topics[0].name == "deep"


def test_a_client_that_goes_while_a_thread_reads_for_it_leaves_nothing_behind(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = threading.Event()
    may_read = threading.Event()

    def wait(piece: object) -> None:
        reading.set()
        assert may_read.wait(60)

    monkeypatch.setattr(output, "is_warm", lambda *place: False)
    monkeypatch.setattr(output, "warm", wait)
    client = Client(broker)
    ask_for_all(client)
    assert reading.wait(60)
    client.reset()
    may_read.set()
    until(lambda: not connections(broker), "the connection to be gone")
    with Client(broker) as after:
        assert after.ask(Api.API_VERSIONS, 0).error_code == 0


@pytest.mark.moldau({"shutdown.drain.ms": 20_000})
def test_what_was_asked_before_a_stop_is_still_sent_to_a_slow_reader(broker: Broker) -> None:
    with Client(broker) as slow:
        ask_for_all(slow)
        until_backed_up(broker)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        receive_all(slow)
        assert slow.is_closed()
        stopping.join()
