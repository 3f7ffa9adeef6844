"""SCRAM from the client's side: names and passwords count as they are, as in Kafka."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.cli.app import run
from moldau.peer.connection import Connection
from moldau.peer.errors import NotAuthenticated
from moldau.security.client import ClientSecurity
from moldau.security.sasl_client import ServerNotTrusted
from moldau.security.scram_client import Scram
from moldau.settings import InvalidSetting
from moldau.testing import Broker
from moldau.wire.apis import Api

DECOMPOSED = unicodedata.normalize("NFD", "pässwörd")
PASSWORDS = {
    "decomposed": DECOMPOSED,
    "composed": unicodedata.normalize("NFC", DECOMPOSED),
    "compatible": "ﬁ①Ａ\u00ad",
    "emoji": "🦆🇨🇿 river",
    "control": "bell\x07",
    "right-to-left": "1אב",
}
JAAS = (
    f'org.apache.kafka.common.security.scram.ScramLoginModule required user_fixed="{DECOMPOSED}";'
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    given = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": "1",
    }
    with Broker(given) as broker:
        yield broker


def address(broker: Broker, protocol: str) -> tuple[str, int]:
    assert broker._server is not None
    return broker.host, broker._server.listener(protocol).port


def add(broker: Broker, user: str, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host, port = address(broker, "PLAINTEXT")
    monkeypatch.setenv("MOLDAU_USER_PASSWORD", password)
    assert run(["users", "add", user, "--bootstrap", f"{host}:{port}"]) == 0


def is_let_in(broker: Broker, user: str, password: str, mechanism: str) -> bool:
    security = ClientSecurity.parse(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
    )
    host, port = address(broker, "SASL_PLAINTEXT")
    try:
        with Connection(host, port, "t", security=security) as connection:
            return bool(connection.ask(Api.METADATA, {"topics": []}).brokers)
    except NotAuthenticated:
        return False


def lets_librdkafka_in(broker: Broker, user: str, password: str, mechanism: str) -> bool:
    from confluent_kafka.admin import AdminClient

    host, port = address(broker, "SASL_PLAINTEXT")
    configuration: dict[str, Any] = {
        "bootstrap.servers": f"{host}:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "logger": logging.getLogger("quiet"),
    }
    admin = AdminClient(configuration)
    return bool(admin.list_topics(timeout=30).brokers)


@pytest.mark.parametrize("kind", PASSWORDS)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_password_that_a_user_was_given_gets_in(
    broker: Broker, kind: str, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"{kind}-{mechanism}"
    add(broker, user, PASSWORDS[kind], monkeypatch)
    assert is_let_in(broker, user, PASSWORDS[kind], mechanism)
    assert lets_librdkafka_in(broker, user, PASSWORDS[kind], mechanism)
    assert not is_let_in(broker, user, PASSWORDS[kind] + "x", mechanism)


def test_two_passwords_that_look_alike_are_two(broker: Broker) -> None:
    assert is_let_in(broker, "fixed", DECOMPOSED, "SCRAM-SHA-512")
    assert not is_let_in(broker, "fixed", PASSWORDS["composed"], "SCRAM-SHA-512")


@pytest.mark.parametrize("user", [DECOMPOSED, "a=b,c", "Ａ①"])
def test_names_count_as_they_are(
    broker: Broker, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(broker, user, "secret", monkeypatch)
    assert is_let_in(broker, user, "secret", "SCRAM-SHA-256")
    assert lets_librdkafka_in(broker, user, "secret", "SCRAM-SHA-256")
    other = unicodedata.normalize("NFKC", user)
    assert other == user or not is_let_in(broker, other, "secret", "SCRAM-SHA-256")


@pytest.mark.parametrize(("user", "password"), [("", "p"), ("u", "\udc80"), ("\udc80", "p")])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_what_cannot_be_sent_is_an_error_of_the_settings(
    user: str, password: str, mechanism: str
) -> None:
    jaas = f'A required username="{user}" password="{password}";'
    with pytest.raises(InvalidSetting):
        ClientSecurity.parse(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": jaas,
            }
        )


# The example of RFC 7677.
NONCE = "rOprNGfwEbeRWgbNEkqO"
BOTH = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="


def test_the_example_of_the_standard() -> None:
    scram = Scram("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert scram.first() == f"n,,n=user,r={NONCE}".encode()
    final = scram.respond(f"r={BOTH},s={SALT},i=4096".encode())
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert final == f"c=biws,r={BOTH},p={proof}".encode()
    assert scram.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize(
    "message",
    [
        f"r={NONCE},s={SALT},i=4096",
        f"r=another{NONCE},s={SALT},i=4096",
        f"r={BOTH},s={SALT},i=4095",
        f"r={BOTH},s={SALT},i=99999999",
        f"r={BOTH},s=?,i=4096",
        f"r={BOTH},s=A,i=4096",
        f"r={BOTH},s={SALT}",
        "e=unknown-user",
        "",
        "\udcff",
    ],
)
def test_a_server_that_begins_wrongly_is_not_trusted(message: str) -> None:
    scram = Scram("SCRAM-SHA-256", "user", "pencil", NONCE)
    with pytest.raises(ServerNotTrusted):
        scram.respond(message.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("message", ["v=AAAA", "v=?", "e=invalid-proof", "", "v="])
def test_a_server_that_does_not_know_the_password_is_not_trusted(message: str) -> None:
    scram = Scram("SCRAM-SHA-256", "user", "pencil", NONCE)
    scram.respond(f"r={BOTH},s={SALT},i=4096".encode())
    with pytest.raises(ServerNotTrusted):
        scram.respond(message.encode())
