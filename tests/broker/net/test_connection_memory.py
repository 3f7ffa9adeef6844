"""Memory of connections: no more than is fair, however much is claimed or half sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moldau.broker.net.request_memory import RequestMemory
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.primitives import INT32
from tests.broker.broker_process import BrokerProcess
from tests.broker.net.connections import connections, push
from tests.broker.wire_client import PATIENCE_S, Client, inside, make_batch, produce_values


def memory(broker: Broker) -> RequestMemory:
    return inside(broker, lambda server: server.connections.request_memory)


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
    until(lambda: "too slowly" in caplog.text)


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


# Back-pressure


@pytest.fixture
def process(tmp_path: Path, sendfile: str) -> Iterator[BrokerProcess]:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("memory is read from /proc")
    with BrokerProcess(tmp_path / "data", [f"socket.sendfile.enable={sendfile}"]) as process:
        yield process
