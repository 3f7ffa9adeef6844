"""Clients that have not authenticated: how little they can take from those that have."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from moldau.broker.net.input import BUSY, SMALL, Input
from moldau.broker.net.login_memory import LoginMemory
from moldau.broker.net.request_memory import RequestMemory
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.api.cluster.sasl import BASE, authenticate, connect, handshake
from tests.broker.wire_client import Client, inside, make_batch
from tests.certificates import client_context, tls_settings

LARGEST = 64 << 10
ALICE = b"\0alice\0wonder land"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(BASE | {"queued.max.request.bytes": str(4 << 20)}) as broker:
        yield broker


def log_in(client: Client) -> None:
    assert handshake(client, "PLAIN").error_code == 0
    assert authenticate(client, ALICE).error_code == 0


def extras(broker: Broker) -> list[int]:
    """The memory of each connection beyond that of an idle one."""
    return inside(broker, lambda server: [each.input.extra for each in server.connections])


def taken(broker: Broker) -> int:
    return inside(broker, lambda server: server.connections.request_memory.taken)


def stall(broker: Broker, stack: ExitStack, count: int) -> list[socket.socket]:
    """Connect so often, and stop in the middle of the largest request that may be."""
    sockets = []
    for _ in range(count):
        each = stack.enter_context(socket.create_connection((broker.host, broker.port)))
        each.sendall(pack(">i", LARGEST) + bytes(SMALL + 4000))
        sockets.append(each)
    return sockets


def test_stalled_logins_take_no_memory_of_requests(broker: Broker) -> None:
    with ExitStack() as stack, connect(broker) as client:
        log_in(client)
        topic = client.create()
        before = taken(broker)
        stall(broker, stack, 200)
        until(lambda: sum(extras(broker)) > 900_000, "memory in use")
        assert taken(broker) == before
        for place in range(3):
            assert client.produce(topic, make_batch(bytes(900_000))).base_offset == place
        # Whoever comes late gets in, with a long message, too.
        with connect(broker) as late:
            assert handshake(late, "PLAIN").error_code == 0
            authenticate(late, bytes(60_000))


def test_the_oldest_of_too_many_stalled_logins_is_closed(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        sockets = stall(broker, stack, 200)
        until(lambda: _is_closed(sockets[0]), "the end of the oldest")
        until(lambda: 0 < sum(extras(broker)) <= 1 << 20, "no more memory than there is")
        assert not _is_closed(sockets[-1])
    assert "too many clients are sending long requests before they authenticate" in caplog.text
    until(lambda: not extras(broker), "all to be gone")
    assert inside(broker, lambda server: server.connections.login_memory.taken) == 0


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_pipelined_requests_take_no_more_than_the_largest_one(broker: Broker) -> None:
    name = bytes(30_000)
    one = pack(">ihhih", 10 + len(name), Api.API_VERSIONS, 0, 1, len(name)) + name
    largest = 0
    with connect(broker) as client:
        for _ in range(6):
            client.send_bytes(one * 5)
            for _ in range(5):
                client.receive_frame()
            largest = max(largest, *extras(broker))
    assert 0 < largest <= LARGEST + 4 - SMALL


def test_memory_of_a_login_counts_for_requests_once_it_has_succeeded(broker: Broker) -> None:
    with connect(broker) as client:
        assert handshake(client, "PLAIN").error_code == 0
        message = pack(">hhih", Api.SASL_AUTHENTICATE, 1, 1, -1)
        message += pack(">i", len(ALICE)) + ALICE
        client.send_bytes(pack(">i", len(message)) + message)
        client.send_bytes(client.frame(Api.METADATA, topics=[{"name": "x" * 20_000}] * 2)[:30_000])
        until(lambda: taken(broker) > 0, "memory for the request")
        assert sum(extras(broker)) == taken(broker)
    until(lambda: taken(broker) == 0, "the memory to be given back")


def test_the_handshake_of_tls_and_the_login_have_one_deadline(tmp_path: Path) -> None:
    given = tls_settings(tmp_path) | {
        key.replace("sasl_plaintext", "sasl_ssl"): text for key, text in BASE.items()
    }
    timeout_s = 100
    given |= {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "connection.authentication.timeout.ms": str(timeout_s * 1000),
    }
    with Broker(given) as broker, connect(broker) as client:

        def time_of(broker: Broker) -> float:
            return inside(broker, lambda server: server.node.loop.time())

        acceptor: Any = inside(broker, lambda server: server.listeners[0].acceptor)
        until(lambda: inside(broker, lambda server: acceptor._coming), "the connection to be taken")
        taken_by = time_of(broker)
        until(lambda: time_of(broker) > taken_by + 0.05)
        client.socket = client_context().wrap_socket(client.socket, server_hostname=broker.host)
        client.ask(Api.API_VERSIONS)
        (login,) = inside(broker, lambda server: [each.login for each in server.connections])
        assert login is not None
        assert login._timer is not None
        assert login._timer.when() < taken_by + timeout_s + 0.05


class Nobody:
    """A connection that only notes its end."""

    def __init__(self, memory: LoginMemory) -> None:
        self.closed: list[str] = []
        self.input = Input(memory.share_of(self))

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def unfinished(received: Input, filled: int, needed: int) -> None:
    received.filled = filled
    assert received.take_off(0, needed)


def test_a_share_moves_with_what_it_holds() -> None:
    memory: Any = LoginMemory(lambda: 100_000)
    requests = RequestMemory(lambda: 1 << 20, set())
    first, second, third = (Nobody(memory) for _ in range(3))
    for each in (first, second, third):
        each.input.draw_on(each.input.memory, LARGEST)
        unfinished(each.input, SMALL, LARGEST)
        if each is first:
            each.input.draw_on(requests, BUSY)
            assert (memory.taken, requests.taken) == (0, LARGEST - SMALL)
    # The first is no longer among those that can be closed.
    assert not first.closed
    fourth = Nobody(memory)
    fourth.input.draw_on(fourth.input.memory, LARGEST)
    unfinished(fourth.input, SMALL, LARGEST)
    assert second.closed
    assert not any(each.closed for each in (first, third, fourth))
    # Its end comes later, and gives nothing back twice.
    for each in (second, third, fourth, first):
        each.input.drop()
    assert (memory.taken, requests.taken) == (0, 0)
