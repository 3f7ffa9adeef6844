"""Clients that cannot get in: each is told why, and so is whoever reads the broker's log."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.kafka.broker import java_words
from moldau.bench.errors import Unavailable
from moldau.client.connection import secured
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError
from moldau.peer.retries import PeerSettings
from moldau.security.authority import Issued
from moldau.security.client import ClientSecurity
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.wire_client import inside
from tests.certificates import HOSTS, authority, client_context, of_broker, of_user, stranger
from tests.clients.security.doors import MODULES, PASSWORD, PASSWORDS, PREFIX
from tests.clients.security.tokens import provider_settings, token

WITHIN_S = 180
SASL = {"SASL": of_broker(), "TOKENS": of_broker()}
# One that does not encrypt, and takes every kind of password.
BARE = "BARE"
# Listeners whose certificate is the problem, or that ask for one.
CERTIFICATES = {
    "MUTUAL": of_broker(),
    "EXPIRED": authority().issue("broker", HOSTS, days=-1),
    "FOREIGN": stranger().issue("broker", HOSTS),
    "ELSEWHERE": authority().issue("broker", ["elsewhere.example"]),
}

pytestmark = pytest.mark.timeout(WITHIN_S + 20)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("listeners")
    (folder / "authority.pem").write_text(authority().certificate)
    names = [*SASL, *CERTIFICATES, BARE]
    protocols = dict.fromkeys(CERTIFICATES, "SSL") | dict.fromkeys(SASL, "SASL_SSL")
    protocols[BARE] = "SASL_PLAINTEXT"
    settings = provider_settings(folder) | {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(f"{n}:{protocols[n]}" for n in names),
        "inter.broker.listener.name": "SASL",
        "ssl.truststore.location": str(folder / "authority.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
            f'{MODULES["SCRAM-SHA-512"]} required user_alice="{PASSWORD}";'
        ),
        "listener.name.bare.sasl.enabled.mechanisms": ",".join(PASSWORDS),
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "1",
    }
    for name, issued in (SASL | CERTIFICATES).items():
        path = folder / f"{name}.pem"
        path.write_text(issued.pem)
        settings[f"listener.name.{name.lower()}.ssl.keystore.location"] = str(path)
    for mechanism in PASSWORDS:
        name = f"listener.name.bare.{mechanism.lower()}.sasl.jaas.config"
        settings[name] = f'{MODULES[mechanism]} required user_alice="{PASSWORD}";'
    with Broker(settings) as broker:
        yield broker


@dataclass(frozen=True)
class Attempt:
    """What a client has, and where it tries."""

    listener: str
    user: str = ""
    password: str = ""
    token: str = ""
    issued: Issued | None = None
    mechanism: str = "SCRAM-SHA-512"

    @property
    def protocol(self) -> str:
        if self.listener == BARE:
            return "SASL_PLAINTEXT"
        return "SASL_SSL" if self.listener in SASL else "SSL"


def address(broker: Broker, attempt: Attempt) -> str:
    assert broker._server is not None
    return f"127.0.0.1:{broker._server.listener(attempt.listener).port}"


def properties(attempt: Attempt, folder: Path) -> dict[str, str]:
    """What the client has, under Java's names."""
    (folder / "trusted.pem").write_text(authority().certificate)
    found = {
        "security.protocol": attempt.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "trusted.pem"),
    }
    if attempt.issued is not None:
        (folder / "client.pem").write_text(attempt.issued.pem)
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "client.pem"),
        }
    if attempt.token:
        (folder / "token").write_text(attempt.token)
        found |= {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": (folder / "token").as_uri(),
            "sasl.jaas.config": f"{MODULES['OAUTHBEARER']} required;",
            "sasl.login.callback.handler.class": (
                f"{PREFIX}.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
        }
    elif attempt.user:
        module = f"{MODULES[attempt.mechanism]} required"
        login = f'{module} username="{attempt.user}" password="{attempt.password}";'
        found |= {"sasl.mechanism": attempt.mechanism, "sasl.jaas.config": login}
    return found


def by_moldau(broker: Broker, attempt: Attempt, folder: Path) -> str:
    host, _, port = address(broker, attempt).rpartition(":")
    given = PeerSettings(security=ClientSecurity.parse(properties(attempt, folder)))
    try:
        with Cluster([(host, int(port))], given) as cluster:
            cluster.metadata()
    except PeerError as problem:
        return str(problem)
    return ""


def by_confluent(broker: Broker, attempt: Attempt, folder: Path) -> str:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    errors: list[str] = []
    given: dict[str, Any] = {
        "bootstrap.servers": address(broker, attempt),
        "security.protocol": attempt.protocol,
        "ssl.ca.pem": authority().certificate,
        "error_cb": lambda error: errors.append(str(error)),
        "logger": logging.getLogger("client.confluent"),
    }
    if attempt.issued is not None:
        given |= {
            "ssl.certificate.pem": attempt.issued.certificate,
            "ssl.key.pem": attempt.issued.key,
        }
    if attempt.token:
        valid = time.time() + 600
        given |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (attempt.token, valid)}
    elif attempt.user:
        given |= {
            "sasl.mechanism": attempt.mechanism,
            "sasl.username": attempt.user,
            "sasl.password": attempt.password,
        }
    admin = AdminClient(given)
    admin.poll(0.1)

    def is_in() -> bool:
        try:
            admin.list_topics(timeout=0.5)
            return True
        except KafkaException:
            # A busy machine may take longer for that; who is refused is told so.
            admin.poll(0.05)
            return False

    until(lambda: is_in() or bool(errors), "the reason")
    return "\n".join(errors)


def by_kafka_python(broker: Broker, attempt: Attempt, folder: Path) -> str:
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return attempt.token

        def extensions(self) -> dict[str, str]:
            return {}

    trusted = properties(attempt, folder)
    given: dict[str, Any] = {
        "bootstrap_servers": address(broker, attempt),
        "security_protocol": attempt.protocol,
        "ssl_cafile": trusted["ssl.truststore.location"],
        # It comes back only then, and is asked again if it has not said why.
        "bootstrap_timeout_ms": 400,
    }
    if attempt.issued is not None:
        path = trusted["ssl.keystore.location"]
        given |= {"ssl_certfile": path, "ssl_keyfile": path}
    if attempt.token:
        given |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
    elif attempt.user:
        given |= {
            "sasl_mechanism": attempt.mechanism,
            "sasl_plain_username": attempt.user,
            "sasl_plain_password": attempt.password,
        }
    try:
        KafkaAdminClient(**given).close()
    except KafkaError as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def by_aiokafka(broker: Broker, attempt: Attempt, folder: Path) -> str:
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaError

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return attempt.token

    given: dict[str, Any] = {
        "bootstrap_servers": address(broker, attempt),
        "security_protocol": attempt.protocol,
        "ssl_context": client_context(attempt.issued, folder),
    }

    async def ask() -> None:
        if attempt.token:
            given.update(sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider())
        elif attempt.user:
            given.update(
                sasl_mechanism=attempt.mechanism,
                sasl_plain_username=attempt.user,
                sasl_plain_password=attempt.password,
            )
        client = AIOKafkaAdminClient(**given)
        try:
            await client.start()
        finally:
            await client.close()

    try:
        asyncio.run(ask())
    except KafkaError as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def by_java(broker: Broker, attempt: Attempt, folder: Path) -> str:
    path = folder / "client.properties"
    given = properties(attempt, folder)
    path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(folder / 'token').as_uri()}"
    try:
        words = java_words(
            "org.apache.kafka.tools.TopicCommand", "--list", jvm=("-Xmx128m", allowed)
        )
    except Unavailable as reason:
        pytest.skip(f"cannot run Kafka's tools: {reason}")
    words += ["--bootstrap-server", address(broker, attempt), "--command-config", str(path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr


Client = Callable[[Broker, Attempt, Path], str]
CLIENTS: dict[str, Client] = {
    "moldau": by_moldau,
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "java": by_java,
}
QUICK = ("moldau", "aiokafka")
EACH_CLIENT = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CLIENTS
]
# What each tries, what the client is told (any of these words) and what the broker's log says.
SITUATIONS: dict[str, tuple[Attempt, tuple[str, ...], str]] = {
    "wrong password": (
        Attempt("SASL", "alice", "a guess"),
        ("invalid credentials", "authentication failed", "SaslAuthenticationFailed"),
        "user 'alice' is unknown or gave a wrong password",
    ),
    "unknown user": (
        Attempt("SASL", "nobody", "a guess"),
        ("invalid credentials", "authentication failed", "SaslAuthenticationFailed"),
        "user 'nobody' is unknown or gave a wrong password",
    ),
    "expired token": (
        Attempt("TOKENS", token=token(-60)),
        ("invalid_token", "expired", "authentication failed", "SaslAuthenticationFailed"),
        "is expired",
    ),
    "expired broker": (
        Attempt("EXPIRED"),
        ("expired", "certificate verify failed", "NotAfter"),
        "the TLS handshake failed",
    ),
    "foreign broker": (
        Attempt("FOREIGN"),
        ("verify failed", "unable to get local issuer", "PKIX", "signature"),
        "the TLS handshake failed",
    ),
    "wrong host name": (
        Attempt("ELSEWHERE"),
        ("mismatch", "verify failed", "No subject alternative", "not valid for"),
        "the TLS handshake failed",
    ),
    "expired client": (
        Attempt("MUTUAL", issued=authority().issue("late", days=-1)),
        ("certificate expired", "certificate_expired", "our certificate has expired"),
        "certificate has expired",
    ),
    "foreign client": (
        Attempt("MUTUAL", issued=stranger().issue("foreign")),
        ("unknown ca", "unknown_ca", "does not trust the authority of our certificate"),
        "certificate was rejected",
    ),
}
# With any broker, aiokafka takes the refusal of a token for consent, and is cut off at its next
# request; and it hides why TLS ended a connection.
TOLD_BESIDES = {
    ("aiokafka", each): ("closed",)
    for each in ("expired token", "expired client", "foreign client")
}


@pytest.mark.parametrize("client", EACH_CLIENT)
def test_who_has_what_is_asked_for_gets_in(broker: Broker, client: str, tmp_path: Path) -> None:
    """Or the others would be refused for reasons of the test."""
    others = () if client == "java" else PASSWORDS
    for attempt in (
        Attempt("SASL", "alice", PASSWORD),
        Attempt("TOKENS", token=token(600)),
        Attempt("MUTUAL", issued=of_user("alice")),
        # Java's get in by these elsewhere.
        *(Attempt(BARE, "alice", PASSWORD, mechanism=each) for each in others),
    ):
        assert CLIENTS[client](broker, attempt, tmp_path) == "", attempt.listener


@pytest.mark.slow
def test_librdkafka_takes_a_token_from_a_file_by_javas_names(
    broker: Broker, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient

    attempt = Attempt("TOKENS", token=token(600))
    given = secured(
        {"bootstrap.servers": address(broker, attempt), **properties(attempt, tmp_path)}
    )
    assert AdminClient(given).list_topics(timeout=WITHIN_S).brokers


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("client", EACH_CLIENT)
def test_both_sides_are_told_what_is_wrong(
    broker: Broker, client: str, situation: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attempt, told, logged = SITUATIONS[situation]
    caplog.clear()
    caplog.set_level(logging.INFO)
    # The first of a kind is told at once, others a minute later: forget that there were others.
    # In this order, or one of a client that is not quite gone would be told and then cleared.
    inside(broker, lambda server: server.connections.hangups.tell())
    told += TOLD_BESIDES.get((client, situation), ())
    said: list[str] = []

    def is_told() -> bool:
        problem = CLIENTS[client](broker, attempt, tmp_path)
        assert problem, "it got in"
        # Some clients say why only in their own log.
        own = [each.getMessage() for each in caplog.records if not each.name.startswith("moldau")]
        said[:] = [problem, *own]
        return any(word.lower() in "\n".join(said).lower() for word in told)

    deadline = time.monotonic() + WITHIN_S
    while not is_told():
        assert time.monotonic() < deadline, said

    def is_logged() -> bool:
        lines = [each.getMessage() for each in caplog.records]
        return any(logged in line for line in lines if not line.startswith("closed "))

    until(is_logged, logged)
    assert "a guess" not in caplog.text
    assert not attempt.token or attempt.token not in caplog.text
