"""Senders: what a broker passes on to the leader is judged there by who sent it, never by the
certificate of the broker that brings it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from moldau.broker.security.principal import ANONYMOUS
from moldau.broker.settings.access import STANDARD_AUTHORIZER
from moldau.http.registry.errors import RegistryError
from moldau.http.registry.leading import Address, NotReached, pass_on
from moldau.local.ports import free_ports
from moldau.testing import Broker, Ensemble
from moldau.testing.waiting import until
from moldau.wire.acls import Operation, Resource
from tests.broker.principals import Person
from tests.broker.wire_client import inside
from tests.certificates import client_context, of_user, tls_settings

SCHEMA = {"schema": '{"type":"string"}'}
# A login that nobody asks for: the certificate says who it is.
USELESS = {"Authorization": "Basic bm9ib2R5Om5vdGhpbmc="}


@pytest.fixture
def brokers(ensemble: Ensemble, tmp_path: Path) -> Iterator[list[Broker]]:
    """Two, whose HTTP side takes certificates, and whose own is that of a super user."""
    settings: dict[str, Any] = tls_settings(tmp_path)
    del settings["listeners"]
    settings |= {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root;User:admin;User:broker;User:ANONYMOUS",
        "zookeeper.connect": f"{ensemble.hosts}/senders-{uuid.uuid4().hex[:8]}",
        "http.listen": "127.0.0.1:0",
        "http.security.protocol": "SSL",
        "listener.name.http.ssl.client.auth": "required",
        "listener.name.http.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
    }
    made = [Broker(settings | {"node.id": str(number)}) for number in range(2)]
    try:
        for broker in made:
            broker.start()
        until(lambda: all(inside(b, lambda s: len(s.state.brokers)) == 2 for b in made))
        yield made
    finally:
        for broker in made:
            broker.stop()


@pytest.mark.slow
def test_a_login_that_nobody_asks_for_does_not_make_a_client_a_broker(
    brokers: list[Broker], tmp_path: Path
) -> None:
    with Person(brokers[0], "admin") as admin:
        for operation in (Operation.WRITE, Operation.ALTER_CONFIGS):
            admin.grant("alice", operation, Resource.TOPIC, "hers")
    until(lambda: all(inside(b, lambda s: len(s.state.access.acls)) == 1 for b in brokers))

    def ask(who: str, broker: Broker, method: str, path: str, body: Any) -> httpx.Response:
        context = client_context(of_user(who), tmp_path)

        def answer() -> httpx.Response | None:
            with httpx.Client(verify=context, headers=USELESS, timeout=60) as http:
                found = http.request(method, f"{broker.http_url}{path}", json=body)
            return found if found.status_code < 500 else None

        return until(answer, "an answer of the leader")

    made = ask("root", brokers[0], "POST", "/subjects/secret-value/versions", SCHEMA)
    assert made.status_code == 200, made.text
    detour = {"name": "x", "subject": "secret-value", "version": 1}
    for broker in brokers:
        hers = "/subjects/hers-value/versions"
        assert ask("alice", broker, "POST", hers, SCHEMA).status_code == 200
        for method, path, body in (
            ("PUT", "/mode/hers-value", {"mode": "IMPORT"}),
            ("PUT", "/config/hers-value", {"alias": "secret-value"}),
            ("POST", hers, {"schema": '{"type":"int"}', "references": [detour]}),
        ):
            refused = ask("alice", broker, method, path, body)
            assert refused.status_code == 403, (broker.http_url, path, refused.text)


def test_a_login_that_came_encrypted_does_not_leave_in_clear() -> None:
    """Where brokers differ, as while a cluster is being locked."""

    def asked(scheme: str, *headers: tuple[bytes, bytes]) -> Request:
        return Request(
            {
                "type": "http",
                "method": "GET",
                "scheme": scheme,
                "server": ("127.0.0.1", 8081),
                "path": "/subjects",
                "raw_path": b"/subjects",
                "query_string": b"",
                "headers": list(headers),
                "principal": ANONYMOUS,
            }
        )

    login = (b"authorization", b"Basic secret")
    (port,) = free_ports(1)
    plain = Address("127.0.0.1", port)
    with pytest.raises(RegistryError, match="does not use TLS"):
        asyncio.run(pass_on(plain, asked("https", login), b"", ""))
    # Nobody is there, which these find out.
    for request in (asked("https"), asked("http", login)):
        with pytest.raises(NotReached):
            asyncio.run(pass_on(plain, request, b"", ""))
