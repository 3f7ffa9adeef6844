"""Logins that fail: the audit tells who was tried, from where, by what and why, and a flood of
them is one line. Those that succeed it tells on request."""

from __future__ import annotations

import base64
import json
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.api.cluster.sasl import BASE, authenticate, connect, handshake
from tests.broker.wire_client import Client, inside, read_records
from tests.certificates import authority, client_context, of_user, stranger, tls_settings

HTTP = {
    "http.listen": "127.0.0.1:0",
    "http.security.protocol": "SASL_PLAINTEXT",
    "listener.name.http.plain.sasl.jaas.config": BASE[
        "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    ],
    "listener.name.http.sasl.enabled.mechanisms": "PLAIN",
}
WHY = "the user is unknown or gave a wrong password"


def told(caplog: pytest.LogCaptureFixture, name: str = "moldau.audit") -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == name]


def try_password(broker: Broker, user: str) -> tuple[int, str]:
    """What a client with a wrong password is told."""
    with connect(broker) as client:
        assert handshake(client, "PLAIN").error_code == 0
        answer = authenticate(client, f"\0{user}\0a guess".encode())
        return answer.error_code, answer.error_message


def test_a_flood_of_guesses_is_one_line_with_those_who_were_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    # No authorizer: whoever asks for passwords wants to know who guesses them.
    with Broker(BASE) as broker:
        answers = {try_password(broker, user) for user in ("alice", "nobody", "alice")}
        answers |= {try_password(broker, f"guess-{number}") for number in range(150)}
        assert len(answers) == 1
        (line,) = told(caplog)
        assert line == f"denied: login from 127.0.0.1 at SASL_PLAINTEXT by PLAIN as 'alice' ({WHY})"
        # The names of one host do not push the failures of others out of the log.
        assert len([each for each in told(caplog, "moldau.broker") if "guess-" in each]) == 0
        with connect(broker) as client:
            handshake(client, "GSSAPI")
        until(lambda: len(told(caplog)) == 2, "the next kind")
        assert told(caplog)[1] == (
            "denied: login from 127.0.0.1 at SASL_PLAINTEXT (its mechanism is not enabled)"
        )
        assert any("mechanism 'GSSAPI' is not enabled" in each for each in caplog.messages)
        inside(broker, lambda server: server.guard.audit.tell())
        last = told(caplog)[2]
        assert last.startswith("denied 153 times: login from 127.0.0.1 at SASL_PLAINTEXT by PLAIN")
        assert "'alice'" in last
        assert "'nobody'" in last
        assert f"and others ({WHY})" in last
    assert "a guess" not in caplog.text


def test_guesses_over_http_are_in_the_audit_and_in_its_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    settings = BASE | HTTP | {"audit.topic": "refusals", "audit.interval.ms": "100"}
    with Broker(settings) as broker:
        for header in ("Basic " + base64.b64encode(b"alice:a guess").decode(), "Bearer x", "X y"):
            answer = httpx.get(f"{broker.http_url}/metrics", headers={"Authorization": header})
            assert answer.status_code == 401
        until(lambda: len(told(caplog)) >= 3, "the audit")
        assert told(caplog)[:3] == [
            f"denied: login from 127.0.0.1 at HTTP by Basic as 'alice' ({WHY})",
            "denied: login from 127.0.0.1 at HTTP by Bearer (neither a password nor a token that "
            "this listener accepts)",
            "denied: login from 127.0.0.1 at HTTP (neither a password nor a token that this "
            "listener accepts)",
        ]
        # Who sends nothing is asked to log in, and has not failed.
        assert httpx.get(f"{broker.http_url}/metrics").status_code == 401
        with connect(broker) as client:
            assert handshake(client, "PLAIN").error_code == 0
            assert authenticate(client, b"\0alice\0wonder land").error_code == 0
            entries = until(lambda: read_topic(client), "the topic")
        (first,) = [each for each in entries if each["mechanism"] == "Basic"]
        told_of = ("decision", "principal", "host", "api", "operation", "users", "rule")
        assert [first[name] for name in told_of] == [
            *("denied", None, "127.0.0.1", "HTTP", "Login", ["alice"], WHY)
        ]
        assert len(told(caplog)) == 3
    assert "a guess" not in caplog.text


def try_certificate(port: int, context: ssl.SSLContext) -> None:
    """Shake hands and wait until the broker has had enough."""
    with socket.create_connection(("127.0.0.1", port), 60) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
                assert not encrypted.recv(1)
        except OSError:
            pass


def test_certificates_that_prove_nobody_are_in_the_audit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = tls_settings(tmp_path) | {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
        "http.listen": "127.0.0.1:0",
        "http.security.protocol": "SSL",
    }
    contexts = {
        "the other side sent no certificate, which is required": client_context(),
        "the certificate was rejected: certificate has expired": client_context(
            authority().issue("late", days=-1), tmp_path
        ),
        "the certificate was rejected: unable to get local issuer certificate": client_context(
            stranger().issue("foreign"), tmp_path
        ),
    }
    unnamed = client_context(of_user("NOBODY 1"), tmp_path)
    no_rule = "as 'CN=NOBODY 1' (the user is named by no rule of ssl.principal.mapping.rules)"
    with Broker(settings) as broker:
        ports = {"SSL": broker.port, "HTTP": int(broker.http_url.rpartition(":")[2])}
        for listener, port in ports.items():
            start = f"denied: login from 127.0.0.1 at {listener} by certificate"
            for reason, context in contexts.items():
                caplog.clear()
                try_certificate(port, context)
                until(lambda: told(caplog), reason)
                assert told(caplog) == [f"{start} ({reason})"]
            caplog.clear()
            try_certificate(port, unnamed)
            until(lambda: told(caplog), "the one whom no rule names")
            assert told(caplog) == [f"{start} {no_rule}"]
        # What is no certificate is no login.
        caplog.clear()
        with socket.create_connection(("127.0.0.1", broker.port), 60) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            until(lambda: "the TLS handshake failed" in caplog.text, "the end of that")
        assert told(caplog) == []
        entries = inside(
            broker, lambda server: [e.described() for e in server.guard.audit._entries.values()]
        )
        assert {each["api"] for each in entries} == {"TLS"}


def test_logins_that_succeed_are_told_where_admissions_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = (
        BASE
        | HTTP
        | tls_settings(tmp_path)
        | {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
        }
    )
    context = client_context(of_user("carol"), tmp_path)

    def log_in_everywhere(broker: Broker) -> None:
        with connect(broker) as client:
            assert handshake(client, "PLAIN").error_code == 0
            assert authenticate(client, b"\0alice\0wonder land").error_code == 0
        answer = httpx.get(f"{broker.http_url}/metrics", auth=("alice", "wonder land"))
        assert answer.status_code == 200
        assert broker._server is not None
        with (
            socket.create_connection(("127.0.0.1", broker._server.listener("SSL").port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1"),
        ):
            until(lambda: len(inside(broker, lambda s: list(s.connections))) == 1, "carol")

    with Broker(settings) as broker:
        log_in_everywhere(broker)
        assert told(caplog) == []
    with Broker(settings | {"audit.admissions.enable": "true"}) as broker:
        log_in_everywhere(broker)
        log_in_everywhere(broker)
        ways = (
            "SASL_PLAINTEXT by PLAIN as 'alice'",
            "HTTP by Basic as 'alice'",
            "SSL by certificate as 'carol'",
        )
        assert told(caplog) == [
            f"allowed: login from 127.0.0.1 at {each} (proved)" for each in ways
        ]
        inside(broker, lambda server: server.guard.audit.tell())
        assert told(caplog)[3:] == [
            f"allowed 2 times: login from 127.0.0.1 at {each} (proved)" for each in ways
        ]


def read_topic(client: Client) -> list[dict[str, Any]]:
    """All entries of the audit's topic, or none if there are not three yet."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    answer = client.ask(
        Api.FETCH,
        12,
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[{"topic": "refusals", "partitions": [partition]}],
    )
    found = answer.responses[0].partitions[0]
    if found.error_code:
        return []
    entries = [json.loads(each.value or b"") for each in read_records(found.records)]
    return entries if len(entries) >= 3 else []
