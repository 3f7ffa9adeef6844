"""`moldau certs`: an authority, and certificates that brokers and clients take."""

from __future__ import annotations

import ssl
from pathlib import Path

from moldau.peer.connection import Connection
from moldau.security.client import ClientSecurity
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import inside
from tests.cli.conftest import Run


def test_a_broker_and_a_user_meet_by_their_certificates(moldau: Run, tmp_path: Path) -> None:
    at = ("--folder", str(tmp_path / "certs"))
    assert moldau("certs", "init", *at).status == 0
    made = moldau("certs", "issue", "broker1", "--host", "127.0.0.1", "--host", "localhost", *at)
    assert made.status == 0, made.err
    assert moldau("certs", "issue", "alice", *at).status == 0
    trust = {"ssl.truststore.location": str(tmp_path / "certs/authority.crt")}
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "required",
        "ssl.keystore.location": str(tmp_path / "certs/broker1.pem"),
    }
    client = {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(tmp_path / "certs/alice.pem"),
    }
    with (
        Broker(settings | trust) as broker,
        Connection(
            broker.host, broker.port, "t", security=ClientSecurity.parse(client | trust)
        ) as connection,
    ):
        assert connection.ask(Api.METADATA, {"topics": None}).brokers
        found = inside(
            broker, lambda server: [str(each.context.principal) for each in server.connections]
        )
        assert found == ["User:CN=alice"]


def test_files_with_keys_are_for_their_owner(moldau: Run, tmp_path: Path) -> None:
    at = ("--folder", str(tmp_path))
    moldau("certs", "init", *at)
    moldau("certs", "issue", "alice", *at)
    for name in ("authority.pem", "alice.pem"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    first = (tmp_path / "alice.pem").read_text()
    moldau("certs", "issue", "alice", "--days", "1", *at)
    assert (tmp_path / "alice.pem").read_text() != first
    ssl.create_default_context(cafile=str(tmp_path / "authority.crt"))


def test_mistakes_are_said(moldau: Run, tmp_path: Path) -> None:
    at = ("--folder", str(tmp_path))
    refused = moldau("certs", "issue", "alice", *at)
    assert refused.status == 1
    assert "moldau certs init" in refused.err
    moldau("certs", "init", *at)
    again = moldau("certs", "init", *at)
    assert again.status == 1
    assert "already exists" in again.err
    assert moldau("certs", "issue", "../up", *at).status == 2
