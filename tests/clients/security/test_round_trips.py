"""Real clients at every door of a broker: each sends a record and reads it back."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.kafka.broker import java_words
from moldau.bench.errors import Unavailable
from moldau.client.connection import secured
from moldau.testing import Broker
from tests.certificates import authority, client_context, of_user
from tests.clients.aio import AioClient
from tests.clients.client import Client, Message, read_all
from tests.clients.confluent import ConfluentClient
from tests.clients.kafka_python import KafkaPythonClient
from tests.clients.security.doors import DOORS, PASSWORD, Door, broker_with_all_doors
from tests.clients.security.tokens import token

WITHIN_S = 180
JAVA = Path(__file__).parent / "RoundTrips.java"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(WITHIN_S + 20)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_with_all_doors(tmp_path_factory.mktemp("doors")) as broker:
        yield broker


def by_confluent(broker: Broker, door: Door, folder: Path) -> Client:
    given: dict[str, Any] = {"security.protocol": door.protocol, "group.id": f"{door.who}.g"}
    if door.is_encrypted:
        given["ssl.ca.pem"] = authority().certificate
    if door.with_certificate:
        given["ssl.certificate.pem"] = of_user("alice").certificate
        given["ssl.key.pem"] = of_user("alice").key
    if door.mechanism:
        given["sasl.mechanism"] = door.mechanism
    if door.has_password:
        given |= {"sasl.username": "alice", "sasl.password": PASSWORD}
    elif door.mechanism:
        given["oauth_cb"] = lambda _: (token(600), time.time() + 600)
    return ConfluentClient(door.address(broker), given)


def by_moldau(broker: Broker, door: Door, folder: Path) -> Client:
    """librdkafka with what `moldau.client` makes of Java's names."""
    given = secured(door.properties(broker, folder)) | {"group.id": f"{door.who}.g"}
    return ConfluentClient(door.address(broker), given)


def by_kafka_python(broker: Broker, door: Door, folder: Path) -> Client:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token(600)

        def extensions(self) -> dict[str, str]:
            return {}

    files = door.properties(broker, folder)
    given: dict[str, Any] = {"security_protocol": door.protocol}
    if door.is_encrypted:
        given["ssl_cafile"] = files["ssl.truststore.location"]
    if door.with_certificate:
        given["ssl_certfile"] = given["ssl_keyfile"] = files["ssl.keystore.location"]
    return KafkaPythonClient(door.address(broker), given | _sasl(door, Provider))


def by_aiokafka(broker: Broker, door: Door, folder: Path) -> Client:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token(600)

    given: dict[str, Any] = {"security_protocol": door.protocol}
    if door.is_encrypted:
        issued = of_user("alice") if door.with_certificate else None
        given["ssl_context"] = client_context(issued, folder)
    return AioClient(door.address(broker), given | _sasl(door, Provider))


def _sasl(door: Door, provider: Callable[[], Any]) -> dict[str, Any]:
    """What kafka-python and aiokafka call alike."""
    if not door.mechanism:
        return {}
    found = {"sasl_mechanism": door.mechanism}
    if door.has_password:
        return found | {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    return found | {"sasl_oauth_token_provider": provider()}


CLIENTS: dict[str, Callable[[Broker, Door, Path], Client]] = {
    "moldau": by_moldau,
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


@pytest.mark.parametrize("door", DOORS, ids=str)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_record_goes_in_and_out(broker: Broker, name: str, door: Door, tmp_path: Path) -> None:
    broker.create_topic(topic := f"{door.who}.{name}.{door}")
    client = CLIENTS[name](broker, door, tmp_path)
    client.produce(topic, [Message(b"x", key=b"k")])
    (found,) = read_all(client, topic, 1)
    assert found.message == Message(b"x", key=b"k")


def test_a_record_of_javas_goes_in_and_out_of_every_door(broker: Broker, tmp_path: Path) -> None:
    topics = [f"{door.who}.java.{door}" for door in DOORS]
    words = []
    for door, topic in zip(DOORS, topics, strict=True):
        broker.create_topic(topic)
        path = tmp_path / f"{door}.properties"
        given = door.properties(broker, tmp_path)
        path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        words += [topic, str(path)]
    said = run_java(tmp_path, words).splitlines()
    assert len(said) == len(DOORS), said
    for door, topic, line in zip(DOORS, topics, said, strict=True):
        value, _, listed = line.partition("\t")
        assert value == f"of {topic}", line
        # Whoever is let in sees their own, and nobody else's.
        assert topic in listed.split()
        assert {each.partition(".")[0] for each in listed.split()} == {door.who}


def run_java(folder: Path, words: list[str]) -> str:
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(folder / 'token').as_uri()}"
    jvm = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", allowed)
    try:
        command = java_words(str(JAVA), *words, jvm=jvm)
    except Unavailable as reason:
        pytest.skip(f"cannot run Kafka's clients: {reason}")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout
