"""Connections that send much or read nothing: the others have their turn."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from moldau.broker.net.connection import Connection
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.broker_process import BrokerProcess
from tests.broker.net.connections import connections, push
from tests.broker.wire_client import Client, fetch_values, inside, make_batch, until_parked

# Turns


def test_connections_that_send_much_at_once_take_turns(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice that is over at once leaves room for one request."""
    monkeypatch.setattr("moldau.broker.net.connection.SLICE_S", -1.0)
    handled: list[str] = []
    connections = inside(moldau_broker, lambda server: server.connections)
    enter = connections.enter

    def note(connection: Connection, frame: memoryview) -> None:
        handled.append(connection.context.client)
        enter(connection, frame)

    monkeypatch.setattr(connections, "enter", note)
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(moldau_broker)) for _ in range(3)]
        for client in clients:
            client.ask(Api.API_VERSIONS, 0)
        # The loop is held until everything has arrived.
        gate = threading.Event()
        holding = threading.Thread(
            target=inside, args=(moldau_broker, lambda server: gate.wait(60))
        )
        holding.start()
        handled.clear()
        for client in clients:
            client.send_bytes(b"".join(client.frame(Api.API_VERSIONS, 0) for _ in range(300)))
        gate.set()
        holding.join()
        for client in clients:
            for _ in range(300):
                assert client.receive().error_code == 0
    first = max(handled.index(peer) for peer in set(handled))
    last = min(len(handled) - handled[::-1].index(peer) for peer in set(handled))
    assert last - first > 800
    # While all three had something to be done, none was served more than twice in a row.
    run = longest = 1
    for before, peer in pairwise(handled[first:last]):
        run = run + 1 if peer == before else 1
        longest = max(longest, run)
    assert longest <= 2


def test_what_is_loaded_for_a_request_is_loaded_aside_and_answers_keep_their_order(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: dict[int, str] = {}

    def load(api: int, version: int) -> None:
        loaded[api] = threading.current_thread().name

    monkeypatch.setattr("moldau.broker.api.entrance.is_loaded", lambda api, version: api in loaded)
    monkeypatch.setattr("moldau.broker.api.entrance.load", load)
    with Client(moldau_broker) as client:
        frames = [
            client.frame(Api.METADATA, topics=[]),
            client.frame(Api.API_VERSIONS, 0),
            client.frame(Api.DESCRIBE_CLUSTER),
            client.frame(Api.METADATA, topics=[]),
        ]
        client.send_bytes(b"".join(frames))
        for _ in frames:
            client.receive()
    assert set(loaded) == {Api.METADATA, Api.DESCRIBE_CLUSTER}
    assert "moldau-broker" not in loaded.values()


# Back-pressure


@pytest.fixture
def process(tmp_path: Path, sendfile: str) -> Iterator[BrokerProcess]:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("memory is read from /proc")
    with BrokerProcess(tmp_path / "data", [f"socket.sendfile.enable={sendfile}"]) as process:
        yield process


def test_who_asks_for_much_and_reads_nothing_is_no_longer_read(process: BrokerProcess) -> None:
    with Client(process.address) as admin:
        admin.create("wide", partitions=500)
        admin.create("deep")
        for _ in range(8):
            admin.produce("deep", make_batch(bytes(1_000_000)))
        admin.ask(Api.METADATA, topics=None)
        before = process.resident_mib()
        process.reset_peak()
        question = admin.frame(Api.METADATA, topics=None)
        wanted = {"partition": 0, "partition_max_bytes": 8 << 20}
        fetch = admin.frame(Api.FETCH, 12, **fetch_values({"deep": [wanted]}))
        at_end = {"deep": [{"partition": 0, "fetch_offset": 8}]}
        parked = admin.frame(Api.FETCH, 12, **fetch_values(at_end, max_wait=60_000))
        admin._asked.clear()
        with ExitStack() as stack:
            # 30,000 answers of 20 KB, of 8 MB, and of 20 KB behind one that waits.
            for first, repeated in ((b"", question), (b"", fetch), (parked, question)):
                greedy = stack.enter_context(Client(process.address))
                greedy.send_bytes(first)
                taken = push(greedy, repeated * 1000, 100)
                assert taken < len(repeated) * 100_000
            assert process.peak_mib() - before < 60
            # Others are served, and who reads again gets all that was asked.
            assert admin.produce("deep", make_batch(b"x")).error_code == 0
            assert len(admin.ask(Api.METADATA, topics=[{"name": "wide"}]).topics) == 1


def test_who_always_has_a_long_poll_waiting_is_read_on(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits counts for as long as it waits, so requests of the past do not add up."""
    monkeypatch.setattr("moldau.broker.net.responses._MOST_HELD", 1000)
    topics = ["a", "b"]
    for topic in topics:
        moldau_broker.create_topic(topic)
    with Client(moldau_broker) as client, Client(moldau_broker) as producer:

        def ask(place: int) -> None:
            wanted = {"partition": 0, "fetch_offset": place // 2}
            client.send_fetch({topics[place % 2]: [wanted]}, max_wait=60_000)

        ask(0)
        for place in range(60):
            ask(place + 1)
            topic = topics[place % 2]
            until_parked(inside(moldau_broker, lambda server: server.partitions["a", 0]))
            until_parked(inside(moldau_broker, lambda server: server.partitions["b", 0]))
            producer.produce(topic, make_batch(b"x"))
            assert client.receive().responses[0].topic == topic


def test_who_reads_again_gets_every_answer_in_order(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("wide", partitions=200)
    with Client(moldau_broker) as client:
        frames = [client.frame(Api.METADATA, topics=None) for _ in range(1500)]
        client.send_bytes(b"".join(frames))
        for _ in frames:
            assert client.receive().topics[0].name == "wide"


def test_connections_that_come_and_go_leave_no_memory_behind(process: BrokerProcess) -> None:
    with Client(process.address) as admin:
        admin.create("t", max_message_bytes=str(10 << 20))

    def churn() -> None:
        for _ in range(60):
            with Client(process.address) as client:
                client.produce("t", make_batch(bytes(2_000_000)))

    churn()
    before = process.resident_mib()
    churn()
    assert process.resident_mib() - before < 40


def test_a_process_that_runs_out_of_files_refuses_and_recovers(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", limit_files=100) as process,
        Client(process.address) as early,
    ):
        early.create("t")
        with ExitStack() as stack:
            flood = [stack.enter_context(Client(process.address)) for _ in range(150)]
            refused = 0
            for client in flood:
                try:
                    client.send(Api.API_VERSIONS, 0)
                    client.receive()
                except ConnectionError:
                    refused += 1
            assert 0 < refused < 150
            assert early.produce("t", make_batch(b"x")).base_offset == 0

        def served() -> bool:
            with Client(process.address) as late:
                try:
                    late.send(Api.API_VERSIONS, 0)
                    return bool(late.receive().error_code == 0)
                except ConnectionError:
                    return False

        until(served, "room for others")
        assert early.values("t") == [b"x"]
        assert process.is_alive


# On the machine itself


@pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="this system has one congestion control"
)
def test_answers_to_the_same_machine_are_not_paced(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t")
        (connection,) = connections(moldau_broker)
        sender = connection._transport.get_extra_info("socket")
        chosen = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert chosen.rstrip(b"\0") == b"reno"
