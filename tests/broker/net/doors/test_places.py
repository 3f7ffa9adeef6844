"""Places: when a broker has as many connections as there may be, those who have not said who they
are make room for others, and those who have said it keep theirs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.api.cluster.sasl import BASE, authenticate, handshake
from tests.broker.net.connections import connections
from tests.broker.net.doors.tls_client import TlsClient, gets_in
from tests.broker.wire_client import Client
from tests.certificates import client_context, tls_settings

WITHIN_S = 60.0
MOST = {"max.connections": "4"}


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def works(client: Client) -> bool:
    return bool(client.ask(Api.METADATA).controller_id == 0)


def is_latest(broker: Broker, client: Client) -> bool:
    """Whether a client is heard last, by a clock that may stand still for a moment."""
    assert works(client)
    times = {each.context.client_port: each.active_at for each in connections(broker)}
    own = times.pop(client.socket.getsockname()[1])
    return own > max(times.values())


@contextmanager
def silent(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(address, WITHIN_S)) for _ in range(count)
        ]


def log_in(client: Client) -> Client:
    assert handshake(client, "PLAIN").error_code == 0
    assert authenticate(client, b"\0alice\0wonder land").error_code == 0
    return client


def test_those_who_do_not_log_in_shut_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(BASE | MOST) as broker, ExitStack() as stack:
        address = (broker.host, broker.port)
        first = log_in(stack.enter_context(Client(address)))
        held = stack.enter_context(silent(address, 30))
        until(lambda: len(connections(broker)) == 4, "as many as there may be")
        others = [log_in(stack.enter_context(Client(address))) for _ in range(3)]
        # Nobody is left who has not logged in, so that there is no room for another.
        with Client(address) as late:
            assert late.is_closed()
        assert all(map(works, [first, *others]))
        until(lambda: all(map(is_closed, held)), "the end of those who were silent")
        assert "it did not authenticate, and another connection needs its place" in caplog.text
        assert "the limit of max.connections" in caplog.text


def test_handshakes_that_do_not_end_shut_nobody_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tls_settings(tmp_path) | MOST) as broker, ExitStack() as stack:
        address = (broker.host, broker.port)
        inside = stack.enter_context(TlsClient(broker, client_context()))
        assert works(inside)
        held = stack.enter_context(silent(address, 30))
        for _ in range(3):
            assert gets_in(broker)
        assert works(inside)
        assert is_closed(held[0])
        assert (
            "its TLS handshake has not finished, and another connection needs its place"
            in caplog.text
        )


def test_one_address_does_not_make_others_go_by_coming_again_and_again(tmp_path: Path) -> None:
    limits = MOST | {"max.connections.per.ip.overrides": "127.0.0.2:1"}
    for settings in (BASE | limits, tls_settings(tmp_path) | limits):
        with Broker(settings) as broker, ExitStack() as stack:
            address = (broker.host, broker.port)
            held = stack.enter_context(silent(address, 3))
            for _ in range(10):
                other = stack.enter_context(
                    socket.create_connection(address, WITHIN_S, ("127.0.0.2", 0))
                )
            # The first is in, and all others were refused.
            until(lambda: is_closed(other), "the end of the last")  # noqa: B023
            assert not any(map(is_closed, held))


def test_a_broker_takes_the_place_of_the_client_that_has_been_idle_longest() -> None:
    settings = MOST | {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    with Broker(settings) as broker, ExitStack() as stack:
        assert broker._server is not None
        ports = {name: broker._server.listener(name).port for name in ("CLIENTS", "BROKERS")}
        clients = [stack.enter_context(Client((broker.host, ports["CLIENTS"]))) for _ in range(4)]
        for client in reversed(clients):
            until(lambda: is_latest(broker, client), "a request after those of the others")  # noqa: B023
        with Client((broker.host, ports["CLIENTS"])) as refused:
            assert refused.is_closed()
        peer = stack.enter_context(Client((broker.host, ports["BROKERS"])))
        assert works(peer)
        assert clients.pop().is_closed()
        assert all(map(works, [*clients, peer]))
