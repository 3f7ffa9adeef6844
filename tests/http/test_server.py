"""The HTTP side of a broker: what it answers, and what bad input costs."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moldau.broker.net.hangups import Hangups
from moldau.http.server import HttpLimits, HttpServer
from moldau.local.ports import free_ports
from moldau.testing import Broker
from moldau.testing.waiting import until, until_async
from moldau.wire.apis import Api
from tests.broker.broker_process import BrokerProcess
from tests.broker.wire_client import Client, inside
from tests.certificates import client_context, tls_settings
from tests.processes import started

PATIENCE_S = 60.0
GET = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"


# So that tests need not send much.
LIMITS = {"http.max.connections": 20, "http.request.max.bytes": 1000}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Strict limits, but for the time: a busy machine may take some for a request."""
    with Broker(LIMITS, http_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture(scope="module")
def impatient() -> Iterator[Broker]:
    with Broker(LIMITS | {"http.request.timeout.ms": 200}, http_listen="127.0.0.1:0") as broker:
        yield broker


def connected(broker: Broker) -> socket.socket:
    host, _, port = broker.http_url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def read_all(connection: socket.socket) -> bytes:
    """Everything that comes until the other side closes."""
    got = b""
    try:
        while some := connection.recv(65536):
            got += some
    except ConnectionResetError:
        pass
    return got


def ends_while_sending(connection: socket.socket, piece: bytes) -> bool:
    """Whether the other side ends a connection that has the same piece to send again and again."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return True
    return False


def is_healthy(broker: Broker) -> bool:
    return until(
        lambda: httpx.get(f"{broker.http_url}/healthz", timeout=PATIENCE_S).status_code == 200,
        ignoring=httpx.TransportError,
    )


def test_health_and_readiness_are_answered_with_their_reasons(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)
    alive = httpx.get(f"{broker.http_url}/healthz", timeout=60)
    assert (alive.status_code, alive.json()["status"]) == (200, "ok")
    assert alive.json()["reason"] == "the event loop is running"
    ready = httpx.get(f"{broker.http_url}/readyz", timeout=60)
    assert ready.status_code == 200
    assert ready.json()["reason"] == "registered, with 3 partitions"
    assert ready.headers["content-type"] == "application/json"


def test_a_broker_that_cannot_serve_says_why_and_names_no_topic(broker: Broker) -> None:
    def refused(names: set[str]) -> None:
        inside(broker, lambda server: setattr(server.replicas, "_incomplete", names))

    refused({"payroll", "orders"})
    try:
        unready = httpx.get(f"{broker.http_url}/readyz", timeout=60)
    finally:
        refused(set())
    assert (unready.status_code, unready.json()["status"]) == (503, "unavailable")
    assert unready.json()["reason"] == "the disk refuses partitions of 2 topics"
    assert "payroll" not in unready.text
    assert httpx.get(f"{broker.http_url}/readyz", timeout=60).status_code == 200


def test_a_wrong_path_and_a_wrong_method_are_errors_in_json(broker: Broker) -> None:
    missing = httpx.get(f"{broker.http_url}/nothing", timeout=60)
    assert (missing.status_code, missing.json()["error_code"]) == (404, 404)
    wrong = httpx.post(f"{broker.http_url}/healthz", content=b"x", timeout=60)
    assert (wrong.status_code, wrong.json()["error_code"]) == (405, 405)
    assert "GET" in wrong.headers["allow"]


def test_a_body_that_announces_too_much_is_refused(broker: Broker) -> None:
    answer = httpx.post(f"{broker.http_url}/healthz", content=b"x" * 1001, timeout=60)
    assert answer.status_code == 413
    assert answer.json()["message"] == "the body is larger than 1000 bytes"


def test_an_endless_body_that_nobody_reads_ends_with_its_connection(impatient: Broker) -> None:
    with closing(connected(impatient)) as connection:
        head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head)
        assert ends_while_sending(connection, b"8000\r\n" + bytes(0x8000) + b"\r\n")
    assert is_healthy(impatient)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /hea", b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"],
    ids=["nothing", "half a line", "half a body"],
)
def test_a_request_that_never_ends_costs_the_connection(impatient: Broker, sent: bytes) -> None:
    with closing(connected(impatient)) as connection:
        connection.sendall(sent)
        read_all(connection)
    assert is_healthy(impatient)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x10\x00\x12\x00\x03\x00\x00\x00\x01garbage\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        GET + b"NONSENSE\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_an_error_and_is_closed(broker: Broker, sent: bytes) -> None:
    with closing(connected(broker)) as connection:
        connection.sendall(sent)
        assert b"400 " in read_all(connection)
    assert is_healthy(broker)


def test_headers_without_end_cost_the_connection(impatient: Broker) -> None:
    with closing(connected(impatient)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\na: ")
        assert ends_while_sending(connection, b"x" * 10_000)
    assert is_healthy(impatient)


def test_one_connection_too_many_takes_the_place_of_the_one_that_rests_longest(
    broker: Broker,
) -> None:
    held = [connected(broker) for _ in range(20)]
    try:
        for connection in held:
            connection.sendall(GET)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        with closing(connected(broker)) as newcomer:
            newcomer.sendall(GET)
            assert newcomer.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert read_all(held[0]) == b""
        for connection in held[1:]:
            connection.sendall(GET)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in held:
            connection.close()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00", b"GET /hea"])
def test_those_who_say_nothing_do_not_shut_others_out(
    tmp_path: Path, protocol: str, said: bytes
) -> None:
    given: dict[str, str | int] = {
        **LIMITS,
        **tls_settings(tmp_path),
        "http.security.protocol": protocol,
    }
    with Broker(given, http_listen="127.0.0.1:0") as broker:
        host, _, port = broker.http_url.partition("://")[2].rpartition(":")
        silent = [socket.create_connection((host, int(port)), PATIENCE_S) for _ in range(60)]
        for each in silent:
            with suppress(OSError):
                each.sendall(said)
        # None of them is given up for its own sake: a request may take 30 s to come.
        with httpx.Client(verify=client_context(), timeout=PATIENCE_S) as client:
            for _ in range(3):
                assert client.get(f"{broker.http_url}/healthz").status_code == 200
        for each in silent:
            each.close()


def test_those_who_are_being_answered_keep_their_places() -> None:
    async def play() -> None:
        release = asyncio.Event()

        async def slow(request: Request) -> Response:
            await release.wait()
            return Response("done")

        hangups = Hangups(asyncio.get_running_loop().call_later)
        limits = HttpLimits(connections=2)
        server = HttpServer("127.0.0.1", 0, [Route("/slow", slow)], limits, hangups)
        await server.start()
        try:
            async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
                busy = [asyncio.create_task(client.get("/slow")) for _ in range(2)]
                await until_async(lambda: len(server._state.tasks) == 2, "both requests")
                reader, writer = await asyncio.open_connection(server.host, server.port)
                with suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
                release.set()
                assert [(await each).text for each in busy] == ["done", "done"]
        finally:
            await server.stop()
            hangups.tell()

    asyncio.run(play())


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_one_address_does_not_get_all_connections(tmp_path: Path, protocol: str) -> None:
    given = tls_settings(tmp_path) if protocol == "SSL" else {}
    given |= {"http.security.protocol": protocol, "max.connections.per.ip": "2"}
    with Broker(given, http_listen="127.0.0.1:0") as broker:
        url = broker.http_url.partition("://")[2]
        host, _, port = url.rpartition(":")
        held = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(2)]
        with closing(socket.create_connection((host, int(port)), timeout=PATIENCE_S)) as third:
            assert read_all(third) == b""
        for connection in held:
            connection.close()
        trusted = client_context()
        until(
            lambda: httpx.get(f"{broker.http_url}/healthz", verify=trusted).status_code == 200,
            ignoring=httpx.TransportError,
        )


def test_requests_on_one_connection_are_answered_in_order(broker: Broker) -> None:
    with closing(connected(broker)) as connection:
        other = b"GET /nothing HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        connection.sendall(GET * 5 + other)
        got = read_all(connection)
    assert got.count(b"HTTP/1.1 200 ") == 5
    assert got.rindex(b"HTTP/1.1 404 ") > got.rindex(b"HTTP/1.1 200 ")


def test_a_restart_takes_the_same_address_and_leaves_nobody_waiting(tmp_path: Path) -> None:
    broker = Broker(http_listen="127.0.0.1:0", data_dir=tmp_path)
    with broker:
        url = broker.http_url
        with closing(connected(broker)) as idle:
            idle.sendall(GET)
            idle.recv(4096)
            broker.stop()
            assert read_all(idle) == b""
        broker.start()
        assert broker.http_url == url
        assert is_healthy(broker)


def test_a_taken_http_address_stops_the_start_and_frees_the_data_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ["broker", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
        ended = subprocess.run(
            [sys.executable, "-m", "moldau", *words, "--http", address],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert f"{address} is in use by another process" in ended.stderr
    assert "--http HOST:PORT" in ended.stderr
    with Broker(data_dir=tmp_path):
        pass


def test_a_supervised_broker_tells_systemd_when_it_serves_and_when_it_stops(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(PATIENCE_S)
        words = ["broker", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
        with started(
            [sys.executable, "-m", "moldau", *words, "--http", f"127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        ) as process:
            assert supervisor.recv(100) == b"READY=1"
            assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60).status_code == 200
            process.terminate()
            assert supervisor.recv(100) == b"STOPPING=1"
            assert process.wait(PATIENCE_S) == 0


def flood(port: int, rounds: int) -> None:
    """Half-sent bodies, endless lines and nonsense, from more connections than there may be."""
    head = b"POST /subjects HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n"
    kinds = (head + bytes(60_000), b"GET /" + b"a" * 60_000, bytes(60_000))
    for _ in range(rounds):
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(250)]
        for number, each in enumerate(held):
            with suppress(OSError):
                each.sendall(kinds[number % 3])
        for each in held:
            each.close()


@pytest.mark.slow
def test_a_flood_of_bad_requests_leaves_memory_flat_and_the_broker_serving(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = [f"http.listen=127.0.0.1:{port}", "http.request.timeout.ms=500"]
    with BrokerProcess(tmp_path / "data", settings) as broker:
        url = f"http://127.0.0.1:{port}"
        # On a busy machine the first one may take longer than a request is given here.
        until(lambda: httpx.get(f"{url}/metrics", timeout=60).status_code == 200)
        flood(port, rounds=8)
        # As many connections as may be open at once take their memory once.
        before = broker.resident_mib()
        flood(port, rounds=16)
        assert httpx.get(f"{url}/readyz", timeout=PATIENCE_S).status_code == 200
        with Client(broker.address) as client:
            assert client.ask(Api.API_VERSIONS, 0).api_keys
        assert broker.resident_mib() - before < 20
        assert broker.stop() == 0
        assert broker.log.count("closing HTTP connection") < 10
