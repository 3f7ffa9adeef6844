"""Rights that are judged by what the registry knows when it acts, not when a request came in."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from moldau.http.registry.following import SchemasFollower
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.acls import Operation
from tests.http.registry.test_rights import LOGINS, ROOT, SCHEMA, Person, grant
from tests.http.test_access import AUTHORIZER


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(LOGINS | AUTHORIZER | ROOT) as broker:
        yield broker


class HeldBody:
    """A POST of alice's whose body is held back."""

    def __init__(self, broker: Broker, path: str, content: Any) -> None:
        self._body = json.dumps(content).encode()
        host, _, port = broker.http_url.removeprefix("http://").rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        login = base64.b64encode(b"alice:of alice").decode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Basic {login}\r\n"
            f"expect: 100-continue\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(self._body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode())
        # It says so when it begins to read the body, and so has judged what it could.
        assert b"100" in self._socket.recv(1 << 16)

    def send(self) -> int:
        """Send the body; the status of the answer."""
        self._socket.sendall(self._body)
        with self._socket, self._socket.makefile("rb") as answer:
            return int(answer.read().split(b" ")[1])


@pytest.mark.parametrize(
    "path",
    [
        "/subjects/mine-value/versions",
        "/subjects/mine-value",
        "/compatibility/subjects/mine-value/versions/1",
    ],
)
def test_a_name_that_becomes_an_alias_while_a_body_comes_opens_nothing(
    broker: Broker, path: str
) -> None:
    alice, root = Person(broker, "alice"), Person(broker, "root")
    assert root.ask("POST", "/subjects/orders-value/versions", SCHEMA) == 200
    grant(broker, "alice", "mine", Operation.WRITE, Operation.ALTER_CONFIGS)
    until(lambda: alice.ask("POST", "/subjects/mine-key/versions", SCHEMA) == 200)
    held = HeldBody(broker, path, {"schema": '["null","string"]'})
    assert root.ask("PUT", "/config/mine-value", {"alias": "orders-value"}) == 200
    assert held.send() == 403
    assert root.answer("GET", "/subjects/orders-value/versions").json() == [1]


def test_an_alias_takes_the_right_to_alter_what_it_stands_for(broker: Broker) -> None:
    alice, root = Person(broker, "alice"), Person(broker, "root")
    assert root.ask("POST", "/subjects/orders-value/versions", SCHEMA) == 200
    grant(broker, "alice", "mine", Operation.WRITE, Operation.ALTER_CONFIGS)
    until(lambda: alice.ask("PUT", "/config/mine-value", {"compatibility": "NONE"}) == 200)
    for alias in ("orders-value", ":.:orders-value", ":.x:orders-value"):
        answer = alice.answer("PUT", "/config/mine-value", {"alias": alias})
        assert answer.status_code == 403
        assert "requires AlterConfigs on its topic" in answer.json()["message"]
    assert alice.ask("PUT", "/config/mine-value", {"alias": "mine-key"}) == 200
    assert alice.ask("PUT", "/config/mine-value", {"alias": None}) == 200
    assert root.ask("PUT", "/config/mine-value", {"alias": "orders-value"}) == 200


def test_ids_that_a_broker_has_not_read_yet_are_judged_when_it_has(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst: a broker that has just started is asked before it has read its own log."""
    made = Person(broker, "root").answer("POST", "/subjects/secret-value/versions", SCHEMA).json()
    broker.stop()
    asked, go_on = threading.Event(), threading.Event()
    read_log, until_current = SchemasFollower._read_log, SchemasFollower.until_current

    async def held(follower: SchemasFollower, partition: Any) -> None:
        if go_on.is_set():
            await read_log(follower, partition)

    async def noted(follower: SchemasFollower) -> None:
        asked.set()
        await until_current(follower)

    monkeypatch.setattr(SchemasFollower, "_read_log", held)
    monkeypatch.setattr(SchemasFollower, "until_current", noted)
    broker.start()
    server = broker._server
    assert server is not None
    mallory = Person(broker, "mallory")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(mallory.ask, "GET", f"/schemas/ids/{made['id']}")
        assert asked.wait(60)
        go_on.set()
        assert broker._loop is not None
        registry = server.partitions.door._registry  # type: ignore[union-attr]
        broker._loop.call_soon_threadsafe(registry.follower.notify)
        assert found.result(60) == 403
