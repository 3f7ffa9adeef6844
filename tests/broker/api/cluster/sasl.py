"""Brokers with SASL listeners, and raw logins, for tests."""

from __future__ import annotations

from typing import Any

from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, inside

PREFIX = "org.apache.kafka.common.security"


PLAIN_JAAS = f'{PREFIX}.plain.PlainLoginModule required user_alice="wonder land" user_bob="b";'


SCRAM_JAAS = f'{PREFIX}.scram.ScramLoginModule required user_alice="wonder land";'


BASE = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_JAAS,
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": SCRAM_JAAS,
    "connection.failed.authentication.delay.ms": "1",
}


SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


WITHIN_S = 60.0


def connect(broker: Broker) -> Client:
    return Client((broker.host, broker.port))


def handshake(client: Client, mechanism: str, version: int = 1) -> Any:
    return client.ask(Api.SASL_HANDSHAKE, version, mechanism=mechanism)


def authenticate(client: Client, message: bytes, version: int = 2) -> Any:
    return client.ask(Api.SASL_AUTHENTICATE, version, auth_bytes=message)


def principals(broker: Broker) -> list[str]:
    return inside(
        broker, lambda server: [str(each.context.principal) for each in server.connections]
    )
