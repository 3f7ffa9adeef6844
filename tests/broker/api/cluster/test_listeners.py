"""Brokers with several listeners: clients of one of them are told the addresses of that one."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from moldau.broker.net.listener import CannotListen
from moldau.local.ports import free_ports
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, inside, make_batch

PROTOCOLS = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"}
BOTH = {"listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0", **PROTOCOLS}


def address(broker: Broker, name: str) -> tuple[str, int]:
    listener = inside(broker, lambda server: server.listener(name))
    return listener.host, listener.port


@pytest.fixture
def broker() -> Iterator[Broker]:
    advertised = "PLAINTEXT://outside.example:19092,INSIDE://inside.example:29092"
    with Broker({**BOTH, "advertised.listeners": advertised}) as broker:
        yield broker


@pytest.mark.parametrize(
    ("name", "told"),
    [("PLAINTEXT", ("outside.example", 19092)), ("INSIDE", ("inside.example", 29092))],
)
def test_every_answer_that_names_brokers_names_them_by_the_clients_listener(
    broker: Broker, name: str, told: tuple[str, int]
) -> None:
    with Client(address(broker, name)) as client:
        client.create("t")
        (node,) = client.ask(Api.METADATA, topics=None).brokers
        assert (node.host, node.port) == told
        (node,) = client.ask(Api.DESCRIBE_CLUSTER, 1).brokers
        assert (node.host, node.port) == told
        (found,) = client.ask(
            Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]
        ).coordinators
        assert (found.error_code, found.host, found.port) == (0, *told)


def test_answers_that_are_kept_encoded_are_not_mixed_up(broker: Broker) -> None:
    with (
        Client(address(broker, "PLAINTEXT")) as outside,
        Client(address(broker, "INSIDE")) as inside,
    ):
        for _ in range(2):
            assert outside.ask(Api.METADATA, topics=None).brokers[0].port == 19092
            assert inside.ask(Api.METADATA, topics=None).brokers[0].port == 29092


def test_a_listener_without_an_advertised_address_names_the_one_that_was_reached() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://0.0.0.0:0",
        "advertised.listeners": "PLAINTEXT://outside.example:19092",
        **PROTOCOLS,
    }
    with Broker(settings) as broker:
        port = address(broker, "INSIDE")[1]
        for host in ("127.0.0.1", "127.0.0.2"):
            try:
                client = Client((host, port))
            except OSError:
                pytest.skip(f"{host} is not an address here")
            with client:
                (node,) = client.ask(Api.METADATA, topics=None).brokers
                assert (node.host, node.port) == (host, port)


def test_an_advertised_port_0_stands_for_the_port_that_was_taken() -> None:
    with (
        Broker({"advertised.listeners": "PLAINTEXT://localhost:0"}) as broker,
        Client(broker) as client,
    ):
        (node,) = client.ask(Api.METADATA, topics=[]).brokers
        assert (node.host, node.port) == ("localhost", client.socket.getpeername()[1])


def test_a_restart_takes_the_same_addresses() -> None:
    with Broker(BOTH) as broker:
        before = [address(broker, name) for name in ("PLAINTEXT", "INSIDE")]
        with Client(before[1]) as client:
            client.create("t")
            client.produce("t", make_batch(b"x"))
        broker.stop()
        broker.start()
        assert [address(broker, name) for name in ("PLAINTEXT", "INSIDE")] == before
        with Client(before[0]) as client:
            assert client.values("t") == [b"x"]


def test_who_cannot_have_all_its_addresses_takes_none() -> None:
    free, taken = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{free},INSIDE://127.0.0.1:{taken}"
    with socket.create_server(("127.0.0.1", taken)):
        with pytest.raises(CannotListen) as caught, Broker({**PROTOCOLS, "listeners": listeners}):
            pass
        assert (caught.value.errno, caught.value.port) == (errno.EADDRINUSE, taken)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", free))
