"""Apache Kafka's own tools over every protocol and mechanism, with their usual settings."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.kafka.broker import java_words
from moldau.bench.errors import Unavailable
from moldau.testing import Broker
from tests.certificates import authority, of_broker, of_user

PREFIX = "org.apache.kafka.common.security"
MODULES = {
    "PLAIN": f"{PREFIX}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{PREFIX}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{PREFIX}.scram.ScramLoginModule",
}
PROTOCOLS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
WITHIN_S = 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(WITHIN_S + 20)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "ssl.keystore.key": of_broker().key,
        "ssl.keystore.certificate.chain": of_broker().certificate,
        "ssl.truststore.certificates": authority().certificate,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MODULES),
        "connections.max.reauth.ms": "5000",
    }
    for name in ("sasl_ssl", "sasl_plaintext"):
        for mechanism, module in MODULES.items():
            key = f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"
            settings[key] = f'{module} required user_alice="wonder land";'
    with Broker(settings) as broker:
        yield broker


def run_tool(broker: Broker, folder: Path, protocol: str, properties: dict[str, str]) -> str:
    """What kafka-topics says when it is asked for all topics."""
    assert broker._server is not None
    port = broker._server.listener(protocol).port
    path = folder / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    try:
        words = java_words("org.apache.kafka.tools.TopicCommand", "--list")
    except Unavailable as reason:
        pytest.skip(f"cannot run Kafka's tools: {reason}")
    words += ["--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return ended.stdout + ended.stderr


def properties(folder: Path, protocol: str, mechanism: str, password: str) -> dict[str, str]:
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        (folder / "authority.pem").write_text(authority().certificate)
        found |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "authority.pem"),
        }
    if protocol == "SSL":
        (folder / "alice.pem").write_text(of_user("alice").pem)
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "alice.pem"),
        }
    else:
        jaas = f'{MODULES[mechanism]} required username="alice" password="{password}";'
        found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return found


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SSL", ""),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ],
)
def test_kafkas_tools_get_in(broker: Broker, tmp_path: Path, protocol: str, mechanism: str) -> None:
    broker.create_topic(topic := f"of-{protocol}-{mechanism}")
    given = properties(tmp_path, protocol, mechanism, "wonder land")
    assert topic in run_tool(broker, tmp_path, protocol, given).splitlines()


def test_kafkas_tools_are_told_of_a_wrong_password(broker: Broker, tmp_path: Path) -> None:
    given = properties(tmp_path, "SASL_SSL", "SCRAM-SHA-512", "wrong")
    said = run_tool(broker, tmp_path, "SASL_SSL", given)
    assert "SaslAuthenticationException" in said
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in said
