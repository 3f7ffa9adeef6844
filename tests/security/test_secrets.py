"""Secrets of every door: looked for in all that a broker says and keeps, after each was used."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from moldau.cli import main
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError
from moldau.peer.retries import PeerSettings
from moldau.security.client import ClientSecurity
from moldau.security.client_config import CLIENT_CONFIG_VARIABLE
from moldau.testing import Broker
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api
from tests.broker.net.doors.tls_client import encrypted_key
from tests.broker.principals import Person, guarded
from tests.certificates import authority, of_broker
from tests.clients.security.doors import MECHANISMS, MODULES, PASSWORDS
from tests.clients.security.tokens import provider_settings, token

WITHIN_S = 30
BROKER = 4
OWN, PASSWORD, GUESS = "of the broker itself", "of alice, nobody else", "what mallory guesses"
KEY_PASSWORD, DYNAMIC = "of the key", "of a setting that changes"
LOGIN = "listener.name.door.{}.sasl.jaas.config"


def settings_of(folder: Path) -> dict[str, str]:
    module = '{} required username="broker" password="{}" user_alice="{}";'
    return (
        provider_settings(folder)
        | {
            "listeners": "INSIDE://127.0.0.1:0,DOOR://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,DOOR:SASL_SSL",
            "inter.broker.listener.name": "INSIDE",
            "http.listen": "127.0.0.1:0",
            "http.security.protocol": "SASL_PLAINTEXT",
            "listener.name.http.sasl.enabled.mechanisms": "PLAIN",
            LOGIN.format("plain").replace("door", "http"): module.format(
                MODULES["PLAIN"], OWN, PASSWORD
            ),
            "ssl.keystore.key": encrypted_key(),
            "ssl.key.password": KEY_PASSWORD,
            "ssl.keystore.certificate.chain": of_broker().certificate,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "connection.failed.authentication.delay.ms": "0",
            "audit.topic": "audit",
            "audit.admissions.enable": "true",
        }
        | {
            LOGIN.format(each.lower()): module.format(MODULES[each], OWN, PASSWORD)
            for each in PASSWORDS
        }
    )


def properties(broker: Broker, mechanism: str, secret: str, folder: Path) -> dict[str, str]:
    found = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.certificates": authority().certificate,
        "sasl.mechanism": mechanism,
    }
    if mechanism in PASSWORDS:
        login = f'{MODULES[mechanism]} required username="alice" password="{secret}";'
        return found | {"sasl.jaas.config": login}
    (folder / "token").write_text(secret)
    return found | {"sasl.oauthbearer.token.endpoint.url": (folder / "token").as_uri()}


def forms(secrets: Iterable[str]) -> Iterable[bytes]:
    """The secrets, and what they are easily turned back from."""
    for secret in secrets:
        plain = secret.encode()
        yield from (plain, plain.hex().encode(), base64.b64encode(plain).rstrip(b"="))


def changes_a_password(broker: Broker) -> Any:
    """Try to set one while the broker runs, which is refused."""
    login = f'{MODULES["PLAIN"]} required user_alice="{DYNAMIC}";'
    change = {"name": LOGIN.format("plain"), "value": login, "config_operation": 0}
    resource = {"resource_type": BROKER, "resource_name": "0", "configs": [change]}
    with Person(broker, "admin") as admin:
        answer = admin.ask(Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource])
        assert answer.responses[0].error_code != 0
        described = {"resource_type": BROKER, "resource_name": "0", "configuration_keys": None}
        return answer, admin.ask(Api.DESCRIBE_CONFIGS, resources=[described])


def test_they_are_in_nothing_that_a_broker_says_or_keeps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("DEBUG")
    right, wrong = token(600), token(-600)
    said: list[str] = []
    settings = settings_of(tmp_path)
    with guarded(**settings) as broker:
        assert broker._server is not None
        port = broker._server.listener("DOOR").port
        for mechanism in MECHANISMS:
            has_password = mechanism in PASSWORDS
            for secret in (PASSWORD, GUESS) if has_password else (right, wrong):
                given = properties(broker, mechanism, secret, tmp_path)
                peer = PeerSettings(security=ClientSecurity.parse(given))
                said.append(repr(peer))
                with Cluster([("127.0.0.1", port)], peer) as cluster:
                    if secret in (PASSWORD, right):
                        cluster.metadata()
                    else:
                        with pytest.raises(PeerError) as refused:
                            cluster.metadata()
                        said.append(str(refused.value))
                config = tmp_path / "client.properties"
                config.write_text(
                    "".join(f"{k}={v.replace(chr(10), chr(92) + 'n')}\n" for k, v in given.items())
                )
                monkeypatch.setenv(CLIENT_CONFIG_VARIABLE, str(config))
                main(("doctor", "--topic", "orders", "--bootstrap", f"127.0.0.1:{port}"))
        said.append(repr(changes_a_password(broker)))
        with Person(broker, "admin") as admin:
            admin.grant("alice", Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        with httpx.Client(base_url=broker.http_url, timeout=WITHIN_S) as http:
            for given_password in (PASSWORD, GUESS):
                for path in ("/metrics", "/readyz", "/subjects", "/console/", "/nothing"):
                    said.append(http.get(path, auth=("alice", given_password)).text)
        said.append(Path("/proc/self/cmdline").read_text())
        assert broker.data_dir is not None
        broker.stop()
        kept = b"".join(each.read_bytes() for each in broker.data_dir.rglob("*") if each.is_file())
    output = capfd.readouterr()
    said += [caplog.text, output.out, output.err, repr(broker)]
    # All of it was looked at.
    assert b"alice" in kept
    assert [each for each in said if "moldau_" in each]
    assert "alice" in caplog.text
    keys = [line for line in encrypted_key().splitlines() if "-" not in line]
    for form in forms([OWN, PASSWORD, GUESS, KEY_PASSWORD, DYNAMIC, right, wrong, *keys]):
        assert form not in kept
        assert not [each for each in said if form.decode() in each]


def test_without_memory_for_it_a_key_is_in_a_file_that_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes = []
    unlink = os.unlink

    def gone(path: str) -> None:
        modes.append(os.stat(path).st_mode & 0o777)
        unlink(path)

    monkeypatch.setattr(os, "unlink", gone)
    security = ClientSecurity.parse(
        {
            "security.protocol": "SSL",
            "ssl.keystore.key": encrypted_key(),
            "ssl.key.password": KEY_PASSWORD,
            "ssl.keystore.certificate.chain": of_broker().certificate,
        }
    )
    assert security is not None
    assert security.context() is not None
    assert modes == [0o600]
    assert not list(tmp_path.iterdir())
