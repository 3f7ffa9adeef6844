"""Certificates renewed by AlterConfigs, for one listener of one broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.settings.access import STANDARD_AUTHORIZER
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.net.doors.tls_client import TlsClient
from tests.broker.wire_client import Client, inside
from tests.certificates import HOSTS, authority, client_context, stranger, tls_settings

SET, DELETE = 0, 1
KEYSTORE = "listener.name.ssl.ssl.keystore.location"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "new.pem").write_text(authority().issue("broker", HOSTS).pem)
    settings = tls_settings(tmp_path) | {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        # Only what is set counts at once; files are not looked at again in this time.
        "ssl.reload.interval.ms": "600000",
    }
    with Broker(settings) as broker:
        yield broker


def encrypted(broker: Broker) -> tuple[str, int]:
    return "127.0.0.1", inside(broker, lambda server: server.listener("SSL").port)


class Visitor(TlsClient):
    """A client of the listener that encrypts."""

    def __init__(self, broker: Broker) -> None:
        Client.__init__(self, encrypted(broker))
        self.socket = client_context().wrap_socket(self.socket, server_hostname="127.0.0.1")

    @property
    def serial(self) -> object:
        return self.socket.getpeercert()["serialNumber"]


def serial(broker: Broker) -> object:
    with Visitor(broker) as visitor:
        return visitor.serial


def alter(broker: Broker, name: str, value: str | None, *, who: str = "0") -> tuple[int, str]:
    config = {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
    resource = {"resource_type": 4, "resource_name": who, "configs": [config]}
    with Client(broker) as client:
        answer = client.ask(Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource])
    (outcome,) = answer.responses
    return outcome.error_code, outcome.error_message or ""


def test_a_new_keystore_counts_for_new_connections_and_after_a_restart(
    broker: Broker, tmp_path: Path
) -> None:
    before = serial(broker)
    with Visitor(broker) as old:
        assert alter(broker, KEYSTORE, str(tmp_path / "new.pem"))[0] == 0
        until(lambda: serial(broker) != before, "the new certificate")
        renewed = serial(broker)
        # Who was there before stays.
        assert old.ask(Api.API_VERSIONS, 0).api_keys
    with Client(broker) as client:
        wanted = {"resource_type": 4, "resource_name": "0", "configuration_keys": [KEYSTORE]}
        answer = client.ask(Api.DESCRIBE_CONFIGS, resources=[wanted])
        (shown,) = answer.results[0].configs
        assert (shown.value, shown.read_only) == (str(tmp_path / "new.pem"), False)
    broker.stop()
    broker.start()
    assert serial(broker) == renewed
    assert alter(broker, KEYSTORE, None)[0] == 0
    until(lambda: serial(broker) == before, "the old certificate")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (KEYSTORE, "{folder}/none.pem", "could not be read"),
        (KEYSTORE, "{folder}/authority.pem", "it contains no private key"),
        ("listener.name.ssl.ssl.keystore.type", "JCEKS", "must be one of"),
        ("listener.name.other.ssl.keystore.location", "{folder}/new.pem", "there is no listener"),
        ("listener.name.ssl.ssl.keystore.password", "of the store", "Cannot update these configs"),
        ("ssl.keystore.location", "{folder}/new.pem", "Cannot update these configs dynamically"),
    ],
)
def test_what_the_listener_cannot_use_is_refused_and_changes_nothing(
    broker: Broker, tmp_path: Path, name: str, value: str, reason: str
) -> None:
    before = serial(broker)
    code, message = alter(broker, name, value.format(folder=tmp_path))
    assert code == Error.INVALID_REQUEST
    assert reason in message
    assert "of the store" not in message
    assert serial(broker) == before
    assert not inside(broker, lambda server: server.state.broker_configs)


def test_certificates_are_those_of_one_broker(broker: Broker, tmp_path: Path) -> None:
    code, message = alter(broker, KEYSTORE, str(tmp_path / "new.pem"), who="")
    assert code == Error.INVALID_REQUEST
    assert "at default cluster level" in message


def test_who_may_not_change_settings_learns_nothing_of_files(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path) | {"authorizer.class.name": STANDARD_AUTHORIZER}
    settings["listeners"] = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
    with Broker(settings) as broker:
        answers = {alter(broker, KEYSTORE, path) for path in ("/no/such/file", "/etc/passwd")}
        assert {code for code, _ in answers} == {Error.CLUSTER_AUTHORIZATION_FAILED}
        assert len(answers) == 1


def test_authorities_to_trust_can_be_set_too(broker: Broker, tmp_path: Path) -> None:
    trust = tmp_path / "others.pem"
    trust.write_text(stranger().certificate)
    assert alter(broker, "listener.name.ssl.ssl.truststore.location", str(trust))[0] == 0
