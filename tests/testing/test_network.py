"""The network of a cluster: what is cut falls silent, in both directions, and for nobody else."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from moldau.local.ports import HOST, free_ports
from moldau.testing.network import Network
from tests.processes import started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="brokers are cut off on Linux only")

SOON_S = 10.0
SILENCE_S = 0.3
LATE_S = 2.0

# A process that echoes what comes to its port, and that connects to a port when told to.
NODE = """
import socket, sys, threading
def serve(connection):
    while data := connection.recv(1000):
        connection.sendall(data)
def listen(server):
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
threading.Thread(target=listen, args=(server,), daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    with socket.create_connection(("127.0.0.1", int(line)), 5) as connection:
        connection.sendall(b"ping")
        connection.settimeout(SILENCE_S)
        try:
            print(connection.recv(4).decode() or "closed", flush=True)
        except TimeoutError:
            print("silence", flush=True)
""".replace("SILENCE_S", str(SILENCE_S))


class Node:
    def __init__(self, process: subprocess.Popen[str], port: int, advertised: int) -> None:
        self.process, self.port, self.advertised = process, port, advertised

    def ask(self, other: Node) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{other.advertised}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def node() -> Iterator[Node]:
    port, advertised = free_ports(2)
    with started(
        [sys.executable, "-c", NODE, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield Node(process, port, advertised)
        finally:
            process.kill()


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.close()


@pytest.fixture
def nodes(network: Network) -> Iterator[list[Node]]:
    with node() as one, node() as other:
        for number, each in enumerate((one, other)):
            network.to_broker(each.advertised, number, each.port, each.process.pid)
        yield [one, other]


def client_of(node: Node) -> socket.socket:
    return socket.create_connection((HOST, node.advertised), SOON_S)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        connection.recv(100)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(SOON_S)
    return False


def test_everything_passes_while_nothing_is_cut(nodes: list[Node]) -> None:
    one, other = nodes
    assert one.ask(other) == other.ask(one) == "ping"
    with client_of(one) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_who_is_cut_off_neither_reaches_nor_is_reached(network: Network, nodes: list[Node]) -> None:
    one, other = nodes
    with client_of(one) as client, client_of(other) as lucky:
        network.cut(0)
        assert one.ask(other) == other.ask(one) == "silence"
        client.sendall(b"hello")
        assert is_silent(client)
        lucky.sendall(b"hello")
        assert lucky.recv(100) == b"hello"
        network.heal(0)
        # What was sent meanwhile arrives late.
        assert client.recv(100) == b"hello"
    assert one.ask(other) == other.ask(one) == "ping"


def test_clients_may_stay_connected(network: Network, nodes: list[Node]) -> None:
    one, other = nodes
    network.cut(0, from_clients=False)
    assert one.ask(other) == other.ask(one) == "silence"
    with client_of(one) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_a_server_that_is_no_broker_is_cut_off_from_one(
    network: Network, nodes: list[Node]
) -> None:
    (cable,) = free_ports(1)
    network.from_broker(cable, 0, nodes[1].port)
    with socket.create_connection((HOST, cable), SOON_S) as connection:
        connection.sendall(b"1")
        assert connection.recv(1) == b"1"
        network.cut(0)
        connection.sendall(b"2")
        assert is_silent(connection)
        network.heal(0)
        assert connection.recv(1) == b"2"


def test_a_dead_broker_is_refused_and_its_connections_close(
    network: Network, nodes: list[Node]
) -> None:
    one, _ = nodes
    with client_of(one) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        network.end(one.advertised)
        one.process.kill()
        assert client.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        client_of(one)


def test_a_slow_link_delays_and_keeps_the_order(network: Network, nodes: list[Node]) -> None:
    one, other = nodes
    with client_of(one) as client, client_of(other) as lucky:
        network.slow(0, 2 * SILENCE_S)
        client.sendall(b"first")
        assert is_silent(client)
        client.sendall(b"second")
        lucky.sendall(b"hello")
        assert lucky.recv(100) == b"hello"
        received = b""
        while len(received) < len(b"firstsecond"):
            received += client.recv(100)
        assert received == b"firstsecond"
        network.slow(0, 0)
        client.sendall(b"third")
        assert client.recv(100) == b"third"


def test_what_was_sent_on_a_broken_connection_arrives_after_what_came_later(
    network: Network,
) -> None:
    port, advertised = free_ports(2)
    with socket.create_server((HOST, port)) as server:
        server.settimeout(SOON_S)
        network.to_broker(advertised, 0, port, 0)
        with socket.create_connection((HOST, advertised), SOON_S) as old:
            old_end, _ = server.accept()
            old_end.settimeout(SOON_S)
            network.slow(0, LATE_S)
            old.sendall(b"old")
            # Only what the network has taken up is on its way.
            assert is_silent(old)
            network.break_connections(0)
            assert old.recv(100) == b""
        network.slow(0, 0)
        with socket.create_connection((HOST, advertised), SOON_S) as new:
            new_end, _ = server.accept()
            new_end.settimeout(SOON_S)
            new.sendall(b"new")
            with old_end, new_end:
                assert new_end.recv(100) == b"new"
                old_end.setblocking(False)
                with pytest.raises(BlockingIOError):
                    old_end.recv(100)
                old_end.settimeout(SOON_S)
                assert old_end.recv(100) == b"old"
                assert old_end.recv(100) == b""
