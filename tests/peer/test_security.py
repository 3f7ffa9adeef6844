"""Our own connections over TLS and SASL: both faces, sessions that end, and clear refusals."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
)
from cryptography.x509 import load_pem_x509_certificate

from moldau.peer.aio import AsyncConnection
from moldau.peer.cluster import Cluster
from moldau.peer.connection import Connection
from moldau.peer.errors import ConnectionLost, NotAuthenticated
from moldau.peer.retries import PeerSettings
from moldau.security.client import ClientSecurity
from moldau.settings import InvalidSetting
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.certificates import authority, of_broker, of_user, stranger

PREFIX = "org.apache.kafka.common.security"
SCRAM = f'{PREFIX}.scram.ScramLoginModule required user_alice="wonder land";'
PLAIN = f'{PREFIX}.plain.PlainLoginModule required user_alice="wonder land";'
LOGIN = f'{PREFIX}.scram.ScramLoginModule required username="alice" password="wonder land";'
TRUST = {"ssl.truststore.certificates": authority().certificate}
# A connection that a busy machine keeps from renewing its session in time has the next, longer one.
SESSIONS_MS = (400, 1_600, 6_400, 25_600)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with a_broker() as broker:
        yield broker


def a_broker(session_ms: int = 60_000) -> Broker:
    names = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "ssl.keystore.key": of_broker().key,
        "ssl.keystore.certificate.chain": of_broker().certificate,
        "ssl.truststore.certificates": authority().certificate,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "connections.max.reauth.ms": str(session_ms),
        "connection.failed.authentication.delay.ms": "1",
    }
    for name in ("sasl_ssl", "sasl_plaintext"):
        settings[f"listener.name.{name}.scram-sha-512.sasl.jaas.config"] = SCRAM
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = PLAIN
    return Broker(settings)


def port(broker: Broker, protocol: str) -> int:
    assert broker._server is not None
    return broker._server.listener(protocol).port


def security(protocol: str, **more: str) -> ClientSecurity:
    properties = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        properties |= TRUST
    if protocol == "SSL":
        alice = of_user("alice")
        properties["ssl.keystore.key"] = alice.key
        properties["ssl.keystore.certificate.chain"] = alice.certificate
    else:
        properties |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN}
    found = ClientSecurity.parse(properties | {k.replace("_", "."): v for k, v in more.items()})
    assert found is not None
    return found


def ask(broker: Broker, protocol: str, given: ClientSecurity) -> Any:
    with Connection("127.0.0.1", port(broker, protocol), "t", security=given) as connection:
        return connection.ask(Api.METADATA, {"topics": None}).brokers


def ask_on_a_loop(broker: Broker, protocol: str, given: ClientSecurity) -> Any:
    async def work() -> Any:
        found = await AsyncConnection.connect(
            "127.0.0.1", port(broker, protocol), "t", security=given
        )
        try:
            return (await found.ask(Api.METADATA, {"topics": None})).brokers
        finally:
            found.close()

    return asyncio.run(work())


ASKS = pytest.mark.parametrize("how", [ask, ask_on_a_loop], ids=["blocking", "loop"])


@ASKS
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_who_proves_it_gets_in(broker: Broker, protocol: str, how: Any) -> None:
    assert how(broker, protocol, security(protocol))
    if protocol != "SSL":
        jaas = LOGIN.replace("scram.Scram", "plain.Plain")
        plain = security(protocol, sasl_mechanism="PLAIN", sasl_jaas_config=jaas)
        assert how(broker, protocol, plain)


@ASKS
def test_what_is_wrong_is_said(broker: Broker, how: Any) -> None:
    wrong = LOGIN.replace("wonder land", "a wrong secret")
    foreign = stranger().certificate
    for protocol, given, reason in (
        ("SASL_PLAINTEXT", {"sasl_jaas_config": wrong}, "invalid credentials"),
        (
            "SASL_PLAINTEXT",
            {"sasl_mechanism": "SCRAM-SHA-256"},
            "it does not support SCRAM-SHA-256",
        ),
        ("SASL_SSL", {"ssl_truststore_certificates": foreign}, "certificate was rejected"),
        ("SASL_SSL", {"ssl_truststore_certificates": "?"}, "ssl.truststore.certificates"),
    ):
        with pytest.raises(NotAuthenticated, match=reason) as refused:
            how(broker, protocol, security(protocol, **given))
        assert "secret" not in str(refused.value)


@ASKS
def test_a_broker_without_tls_or_a_certificate_it_requires_is_an_error(
    broker: Broker, how: Any
) -> None:
    plain = security("SASL_SSL")
    with pytest.raises(ConnectionLost, match=r"does not speak TLS|closed the connection"):
        how(broker, "SASL_PLAINTEXT", plain)
    without = security("SSL", ssl_keystore_key="", ssl_keystore_certificate_chain="")
    with pytest.raises(ConnectionLost):
        how(broker, "SSL", without)


def test_a_wrong_password_is_not_tried_again_and_again(broker: Broker) -> None:
    given = security("SASL_SSL", sasl_jaas_config=LOGIN.replace("wonder", "wrong"))
    address = [("127.0.0.1", port(broker, "SASL_SSL"))]
    patient = PeerSettings(security=given, reach_within_s=3600)
    with (
        Cluster(address, patient) as cluster,
        pytest.raises(NotAuthenticated, match="invalid credentials"),
    ):
        cluster.metadata()


def is_kept(play: Callable[[Broker, int], None], session_ms: int) -> bool:
    """Whether a connection outlives its session."""
    with a_broker(session_ms) as broker:
        try:
            play(broker, session_ms)
        except ConnectionLost:
            return False
    return True


def test_sessions_are_renewed_over_the_same_connection() -> None:
    def play(broker: Broker, session_ms: int) -> None:
        given = security("SASL_SSL")
        until = time.monotonic() + 3 * session_ms / 1000
        with Connection("127.0.0.1", port(broker, "SASL_SSL"), "t", security=given) as connection:
            while time.monotonic() < until:
                assert connection.ask(Api.METADATA, {"topics": None}).brokers
                time.sleep(0.02)

    assert any(is_kept(play, session_ms) for session_ms in SESSIONS_MS)


def test_sessions_are_renewed_while_many_ask() -> None:
    async def work(broker: Broker, session_ms: int) -> None:
        given = security("SASL_PLAINTEXT")
        connection = await AsyncConnection.connect(
            "127.0.0.1", port(broker, "SASL_PLAINTEXT"), "t", security=given
        )
        end = time.monotonic() + 3 * session_ms / 1000

        async def ask_often() -> None:
            while time.monotonic() < end:
                assert (await connection.ask(Api.METADATA, {"topics": None})).brokers
                await asyncio.sleep(0.005)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(4):
                    tasks.create_task(ask_often())
        except* ConnectionLost as lost:
            raise lost.exceptions[0] from None
        finally:
            connection.close()

    def play(broker: Broker, session_ms: int) -> None:
        asyncio.run(work(broker, session_ms))

    assert any(is_kept(play, session_ms) for session_ms in SESSIONS_MS)


def test_settings_travel_to_another_process_and_are_not_shown() -> None:
    given = security("SASL_SSL")
    given.context()
    copy = pickle.loads(pickle.dumps(given))
    # Connections are kept for who has the same settings.
    assert copy == given
    assert len({copy, given}) == 1
    assert copy != security("SASL_PLAINTEXT")
    assert copy.context() is not None
    assert "wonder" not in repr(given)
    assert "PRIVATE" not in repr(security("SSL"))


def test_files_that_change_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "authority.pem"
    path.write_text(authority().certificate)
    found = ClientSecurity.parse({"security.protocol": "ssl", "ssl.truststore.location": str(path)})
    assert found is not None
    first = found.context()
    assert found.context() is first
    path.write_text(stranger().certificate + authority().certificate)
    assert found.context() is not first


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: SASL_SSL needs one"),
        ({"security.protocol": "TLS"}, "must be one of"),
        ({"ssl.truststore.password.file": "x"}, "no such security setting"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "sasl.jaas.config: PLAIN needs username and password",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": 'A required password="secret"',
            },
            "final semicolon",
        ),
    ],
)
def test_properties_that_cannot_be_are_refused(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason) as refused:
        ClientSecurity.parse(properties)
    assert "secret" not in str(refused.value)


def test_a_truststore_may_be_pkcs12(broker: Broker, tmp_path: Path) -> None:
    certificate = load_pem_x509_certificate(authority().certificate.encode())
    store = serialize_java_truststore(
        [PKCS12Certificate(certificate, b"authority")], BestAvailableEncryption(b"of the store")
    )
    (tmp_path / "trust.p12").write_bytes(store)
    given = security(
        "SASL_SSL",
        ssl_truststore_certificates="",
        ssl_truststore_location=str(tmp_path / "trust.p12"),
        ssl_truststore_type="PKCS12",
        ssl_truststore_password="of the store",
    )
    assert ask(broker, "SASL_SSL", given)


def test_no_security_is_none() -> None:
    assert ClientSecurity.parse({"client.id": "x", "security.protocol": "PLAINTEXT"}) is None
