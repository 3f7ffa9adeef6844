"""One connection: frames however they arrive, answers in order, and no more memory than is fair."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from moldau.broker.net.connection import Connection
from moldau.broker.net.request_memory import RequestMemory
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.primitives import INT32
from tests.broker.broker_process import BrokerProcess
from tests.broker.wire_client import (
    PATIENCE_S,
    Client,
    fetch_values,
    inside,
    make_batch,
    produce_values,
    read_records,
    until,
    until_parked,
)


def connections(broker: Broker) -> list[Connection]:
    return inside(broker, lambda server: list(server.connections))


def memory(broker: Broker) -> RequestMemory:
    return inside(broker, lambda server: server.connections.request_memory)


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


@pytest.mark.moldau({"connections.max.idle.ms": 50})
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


# Buffers


def test_a_buffer_grows_when_bytes_arrive_and_not_when_they_are_claimed(
    moldau_broker: Broker,
) -> None:
    with Client(moldau_broker) as client:
        client.send_bytes(INT32.pack(1 << 20) + bytes(10_000))

        def received(count: int) -> bool:
            return sum(each.input.filled for each in connections(moldau_broker)) >= count

        until(lambda: received(10_000), "the bytes to arrive")
        assert memory(moldau_broker).taken == 0
        client.send_bytes(bytes(10_000))
        until(lambda: received(20_000), "the bytes to arrive")
        assert 1 << 20 <= memory(moldau_broker).taken + (16 << 10) <= 2 << 20


def test_the_buffer_of_a_connection_that_was_busy_is_given_back(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t", max_message_bytes=10 << 20)
    with Client(moldau_broker) as client:
        client.produce("t", make_batch(bytes(5_000_000)))
        (connection,) = connections(moldau_broker)
        assert connection.input.extra > 0
        inside(moldau_broker, lambda server: connection.input.shrink())
        assert connection.input.extra == 0
        assert inside(moldau_broker, lambda server: server.connections.request_memory.taken) == 0
        assert client.produce("t", make_batch(bytes(5_000_000))).base_offset == 1


# One large request at a time: there is no more memory than others may need.
ONE_LARGE = {"queued.max.request.bytes": 4 << 20}
LARGE = 3 << 20


def large_request(client: Client, topic: str) -> bytes:
    return client.frame(Api.PRODUCE, 9, **produce_values({topic: {0: make_batch(bytes(LARGE))}}))


def waiting(broker: Broker) -> int:
    return inside(broker, lambda server: len(server.connections.request_memory.waiting))


@pytest.mark.moldau(ONE_LARGE)
def test_who_finds_no_memory_waits_while_small_requests_get_through(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t", max_message_bytes=10 << 20)
    with ExitStack() as stack:
        first, second, third, gone, honest = (
            stack.enter_context(Client(moldau_broker)) for _ in range(5)
        )
        frame = large_request(first, "t")
        first.send_bytes(frame[: LARGE // 2])
        until(lambda: memory(moldau_broker).large > 0, "the first to have its memory")
        for place, client in enumerate((second, gone, third), 1):
            push(client, large_request(client, "t"), 1)
            client.socket.settimeout(PATIENCE_S)
            until(lambda: waiting(moldau_broker) == place, "it to wait")  # noqa: B023
        # It leaves while it waits.
        gone.reset()
        for place in range(3):
            assert honest.produce("t", make_batch(bytes(900_000))).base_offset == place
        second.expect_nothing()
        assert memory(moldau_broker).large < 2 * LARGE
        first.send_bytes(frame[LARGE // 2 :])
        for place, client in enumerate((first, second, third), 3):
            result = client.receive().responses[0].partition_responses[0]
            assert (result.error_code, result.base_offset) == (0, place)
    until(lambda: not connections(moldau_broker), "the connections to be gone")
    assert memory(moldau_broker).taken == 0
    assert waiting(moldau_broker) == 0


@pytest.mark.moldau(ONE_LARGE)
def test_the_slowest_sender_is_closed_if_others_wait_for_its_memory(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("moldau.broker.net.request_memory.GRACE_S", 0.1)
    monkeypatch.setattr("moldau.broker.net.request_memory._LOOK_S", 0.05)
    moldau_broker.create_topic("t", max_message_bytes=10 << 20)
    with Client(moldau_broker) as slow, Client(moldau_broker) as other:
        slow.send_bytes(large_request(slow, "t")[: LARGE // 2])
        until(lambda: memory(moldau_broker).large > 0, "the slow one to have its memory")
        other.send_bytes(large_request(other, "t"))
        assert other.receive().responses[0].partition_responses[0].base_offset == 0
        assert slow.is_closed()
    assert "too slowly" in caplog.text


def test_half_sent_requests_by_the_dozen_take_no_more_than_they_may(process: BrokerProcess) -> None:
    """40 clients that claim 100 MB, as much as they are let send, and nobody else is hindered."""
    process.reset_peak()
    before = process.resident_mib()
    with ExitStack() as stack, Client(process.address) as honest:
        honest.create("t")
        for _ in range(40):
            greedy = stack.enter_context(Client(process.address))
            greedy.send_bytes(INT32.pack(100 << 20))
            push(greedy, bytes(1 << 20), 8, patience_s=0.02)
        for place in range(20):
            assert honest.produce("t", make_batch(bytes(900_000))).base_offset == place
    # What two of them sent, and the buffer of each.
    assert process.peak_mib() - before < 60


@pytest.mark.moldau({"queued.max.request.bytes": 1 << 20})
def test_a_busy_connection_whose_buffer_may_not_grow_is_served_all_the_same(
    moldau_broker: Broker,
) -> None:
    moldau_broker.create_topic("t")
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(moldau_broker)) for _ in range(6)]
        for client in clients:
            frames = [
                client.frame(Api.PRODUCE, 9, **produce_values({"t": {0: make_batch(bytes(500))}}))
                for _ in range(600)
            ]
            client.send_bytes(b"".join(frames))
        for client in clients:
            for _ in range(600):
                assert client.receive().responses[0].partition_responses[0].error_code == 0


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
            target=inside, args=(moldau_broker, lambda server: gate.wait(20))
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


def push(client: Client, data: bytes, times: int, patience_s: float = 0.5) -> int:
    """Sends without reading until the broker takes no more; the bytes that it took."""
    sent = 0
    client.socket.setblocking(False)
    for _ in range(times):
        view = memoryview(data)
        while view:
            if not select.select([], [client.socket], [], patience_s)[1]:
                return sent
            count = client.socket.send(view)
            view = view[count:]
            sent += count
    return sent


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
