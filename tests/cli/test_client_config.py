"""`--client-config`: commands and programs that prove who they are, from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.settings.access import STANDARD_AUTHORIZER
from moldau.cli import main
from moldau.client import Admin, Consumer, Producer
from moldau.security.client_config import CLIENT_CONFIG_VARIABLE, client_properties
from moldau.security.librdkafka import for_librdkafka
from moldau.settings import InvalidSetting
from moldau.testing import Broker
from tests.certificates import authority, of_broker, of_user, stranger
from tests.cli.conftest import QUICKLY, Run

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET = "wonder land"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.key": of_broker().key,
        "ssl.keystore.certificate.chain": of_broker().certificate,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            f'{MODULE} required user_alice="{SECRET}" user_bob="{SECRET}";'
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:alice",
        "connection.failed.authentication.delay.ms": "1",
    }
    with Broker(settings) as broker:
        yield broker


def write(folder: Path, broker: Broker, password: str = SECRET, user: str = "alice") -> Path:
    """The file of a client, as Kafka's tools take it."""
    (folder / "authority.pem").write_text(authority().certificate)
    path = folder / "client.properties"
    path.write_text(
        f"""# What Kafka's own tools take with --command-config.
bootstrap.servers={broker.bootstrap}
security.protocol=SASL_SSL
ssl.truststore.location={folder}/authority.pem
ssl.truststore.type=PEM
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={MODULE} required \\
    username="{user}" \\
    password="{password}";
"""
    )
    return path


@pytest.fixture
def config(tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Commands set it for what they start; a test must not leave it behind.
    monkeypatch.setenv(CLIENT_CONFIG_VARIABLE, "")
    monkeypatch.delenv("MOLDAU_BOOTSTRAP", raising=False)
    return write(tmp_path, broker)


def test_commands_take_a_file_with_a_password(
    moldau: Run, broker: Broker, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--bootstrap", broker.bootstrap)
    created = moldau("topics", "create", "locked", *at, "--client-config", str(config))
    assert created.status == 0, created.err
    monkeypatch.setenv(CLIENT_CONFIG_VARIABLE, str(config))
    assert moldau("produce", "locked", *at, *QUICKLY, typed="a\nb\n").status == 0
    read = moldau("consume", "locked", "--from-beginning", "--max", "2", *at)
    assert read.out == "a\nb\n", read.err
    assert "locked" in moldau("topics", "list", *at).out
    for words in (("cluster", "describe"), ("groups", "list"), ("doctor",)):
        done = moldau(*words, *at)
        assert done.status == 0, done


def test_the_file_may_hold_the_address_too(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "")
    assert main(["topics", "list", "--client-config", str(config)]) == 0, capsys.readouterr()


def test_a_wrong_password_is_said_at_once_and_not_shown(
    moldau: Run, tmp_path: Path, broker: Broker, config: Path
) -> None:
    path = write(tmp_path, broker, "a wrong secret")
    at = ("--bootstrap", broker.bootstrap)
    refused = moldau("topics", "list", *at, "--client-config", str(path))
    assert refused.status == 1
    assert "no broker accepted our login" in refused.err
    assert "invalid credentials" in refused.err
    assert "moldau users password" in refused.err
    assert "secret" not in refused.err
    told = moldau("doctor", "--data-dir", str(tmp_path), *at, "--client-config", str(path))
    assert told.status == 1
    assert "accepts connections" in told.out
    assert "invalid credentials" in told.out
    assert "secret" not in told.out + told.err


def test_a_broker_that_is_not_trusted_is_said_so(
    moldau: Run, tmp_path: Path, broker: Broker, config: Path
) -> None:
    (tmp_path / "authority.pem").write_text(stranger().certificate)
    at = ("--bootstrap", broker.bootstrap, "--client-config", str(config))
    refused = moldau("topics", "list", *at)
    assert refused.status == 1
    assert "the certificate was rejected" in refused.err
    assert "ssl.*" in refused.err


def test_who_may_not_write_is_told_so_in_its_own_name(
    moldau: Run, tmp_path: Path, broker: Broker, config: Path
) -> None:
    path = write(tmp_path, broker, user="bob")
    at = ("--bootstrap", broker.bootstrap, "--client-config", str(path))
    refused = moldau("produce", "locked-for-bob", *at, typed="a\n")
    assert refused.status == 1
    assert "no right to Write" in refused.err
    assert "--allow User:bob --operation Write --topic locked-for-bob" in refused.err
    refused = moldau("acls", "list", *at)
    assert "--allow User:bob --operation Describe --cluster" in refused.err


def test_a_file_that_is_none_is_wrong_usage(moldau: Run, tmp_path: Path, config: Path) -> None:
    refused = moldau("topics", "list", "--client-config", str(tmp_path / "none"))
    assert refused.status == 2
    # The path may be broken into lines.
    assert "--client-config" in refused.err
    assert "such file" in refused.err


def test_our_client_reads_the_same_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLIENT_CONFIG_VARIABLE, str(config))
    address = client_properties()["bootstrap.servers"]
    with Admin(address) as admin:
        admin.create_topic("from-client")
    with Producer(address) as producer:
        producer.send("from-client", b"x")
    with Consumer(address) as consumer:
        consumer.subscribe("from-client")
        assert next(consumer.messages(20)).value == b"x"


def test_our_client_takes_javas_names(broker: Broker, tmp_path: Path, config: Path) -> None:
    properties = client_properties(str(config))
    with Admin(broker.bootstrap, settings=properties) as admin:
        assert admin.topics() is not None


def test_javas_names_become_librdkafkas(tmp_path: Path) -> None:
    alice = of_user("alice")
    (tmp_path / "alice.pem").write_text(alice.pem)
    found = for_librdkafka(
        {
            "acks": "all",
            "security.protocol": "ssl",
            "ssl.truststore.certificates": authority().certificate,
            "ssl.keystore.location": str(tmp_path / "alice.pem"),
            "ssl.keystore.type": "PEM",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.3",
            "schema.registry.ssl.ca.location": "of the registry",
            "basic.auth.user.info": "for the registry",
        }
    )
    assert found == {
        "acks": "all",
        "security.protocol": "SSL",
        "ssl.ca.pem": authority().certificate,
        "ssl.key.pem": alice.pem,
        "ssl.certificate.pem": alice.pem,
        "ssl.endpoint.identification.algorithm": "none",
    }
    with pytest.raises(InvalidSetting, match="final semicolon"):
        for_librdkafka({"sasl.jaas.config": 'A required password="b"'})
