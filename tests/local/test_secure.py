"""Locked set-ups in one word: what they make, who gets in, and that nobody else does."""

from __future__ import annotations

import base64
import os
import re
import signal
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from moldau.cli import main
from moldau.cli.top.sample import Unreachable, take
from moldau.local.ports import free_ports
from moldau.local.secure import SecureFolder
from moldau.peer.cluster import Cluster as PeerCluster
from moldau.peer.errors import NotAuthenticated, PeerError
from moldau.peer.retries import PeerSettings
from moldau.security.client import ClientSecurity
from moldau.security.client_config import CLIENT_CONFIG_VARIABLE
from moldau.testing import Broker
from tests.processes import started

WITHIN_S = 60


def metadata(settings: dict[str, str], within_s: float = WITHIN_S) -> int:
    """How many brokers a client with these settings is told of."""
    host, _, port = settings["bootstrap.servers"].partition(",")[0].rpartition(":")
    peer = PeerSettings(security=ClientSecurity.parse(settings), reach_within_s=within_s)
    with PeerCluster([(host, int(port))], peer) as cluster:
        return len(cluster.metadata().nodes)


def test_a_broker_for_tests_may_be_locked() -> None:
    with Broker(secure=True) as broker:
        assert AdminClient({**broker.librdkafka_settings}).list_topics(timeout=WITHIN_S).brokers
        assert metadata(broker.client_settings) == 1
        broker.stop()
        broker.start()
        assert metadata(broker.client_settings) == 1
        with pytest.raises(PeerError):
            metadata({"bootstrap.servers": broker.bootstrap}, within_s=1)
        wrong = dict(broker.client_settings)
        wrong["sasl.jaas.config"] = re.sub(
            'password=".*"', 'password="x"', wrong["sasl.jaas.config"]
        )
        with pytest.raises(NotAuthenticated):
            metadata(wrong)


def test_a_locked_broker_asks_over_http_too() -> None:
    with Broker({"http.listen": "127.0.0.1:0"}, secure=True) as broker:
        settings = broker.client_settings
        context = ssl.create_default_context(cafile=settings["ssl.truststore.location"])
        url = f"{broker.http_url}/metrics"
        assert url.startswith("https://")
        assert httpx.get(url, verify=context, timeout=WITHIN_S).status_code == 401
        password = settings["sasl.jaas.config"].partition('password="')[2].partition('"')[0]
        login = ("admin", password)
        assert httpx.get(url, verify=context, auth=login, timeout=WITHIN_S).status_code == 200


def test_the_registry_of_a_locked_broker_takes_what_the_brokers_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "admin.properties"
    with Broker({"http.listen": "127.0.0.1:0"}, secure=True) as broker:
        settings = broker.client_settings
        config.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        # Commands leave it in the environment, for what they start.
        monkeypatch.setenv(CLIENT_CONFIG_VARIABLE, "")
        words = ("schemas", "list", "--json", "--registry", broker.http_url)
        assert main(words) == 1
        assert main((*words, "--client-config", str(config))) == 0
        config.write_text(re.sub('password=".*"', 'password="a guess"', config.read_text()))
        capsys.readouterr()
        assert main((*words, "--client-config", str(config))) == 1
        refused = capsys.readouterr().err
        assert "rejected our credentials" in refused
        assert "a guess" not in refused


def test_top_reads_a_locked_broker_as_the_client_config_says() -> None:
    with Broker(secure=True, http_listen="127.0.0.1:0") as broker:
        assert broker.http_url.startswith("https://")
        found = take(broker.http_url, ClientSecurity.parse(broker.client_settings))
        assert found.value("kafka_brokers") == 1
        without = {**broker.client_settings, "security.protocol": "SSL"}
        without.pop("sasl.jaas.config")
        with pytest.raises(Unreachable, match="401"):
            take(broker.http_url, ClientSecurity.parse(without))
        with pytest.raises(Unreachable, match="certificate verify failed"):
            take(broker.http_url)


def test_files_are_for_their_owner_and_stay_the_same(tmp_path: Path) -> None:
    folder = SecureFolder(tmp_path / "secure")
    first = folder.broker_settings(0, "0.0.0.0:9092", "broker.example:9092")
    folder.write_broker_config(0, first)
    folder.write_client_config("broker.example:9092")
    for path in (tmp_path / "secure").iterdir():
        if path.name != "authority.crt":
            assert path.stat().st_mode & 0o077 == 0, path
    again = SecureFolder(tmp_path / "secure").broker_settings(0, "0.0.0.0:9092", "b:9092")
    jaas = "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"
    assert again[jaas] == first[jaas]


def test_brokers_that_begin_at_once_share_one_authority_and_tell_of_each_other(
    tmp_path: Path,
) -> None:
    def begin(broker: int) -> str:
        folder = SecureFolder(tmp_path / "shared")
        folder.add_broker(broker, f"b{broker}:9092")
        return folder.authority.read_text() + folder.client_settings("")["sasl.jaas.config"]

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(begin, range(8)))) == 1
    config = (tmp_path / "shared" / "admin.properties").read_text()
    told = config.partition("bootstrap.servers=")[2].partition("\n")[0]
    assert set(told.split(",")) == {f"b{broker}:9092" for broker in range(8)}
    # A broker that moves is not looked for where it was, nor one that takes any port.
    folder = SecureFolder(tmp_path / "shared")
    folder.add_broker(0, "elsewhere:1")
    folder.add_broker(1, "")
    config = (tmp_path / "shared" / "admin.properties").read_text()
    assert "elsewhere:1" in config
    assert "b0:9092" not in config
    assert "b1:9092" not in config


def test_an_authority_without_locks_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("broker", "--authority", "shared")) == 2
    assert "--secure" in capsys.readouterr().err


def test_moldau_broker_secure_locks_a_broker_and_prints_what_a_client_needs(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moldau", "broker", "--secure"]
    command += ["--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"moldau broker 0 ready on 127.0.0.1:{port}\n"
        config = tmp_path / "data-secure" / "admin.properties"
        listed = subprocess.run(
            [
                sys.executable,
                "-m",
                "moldau",
                "topics",
                "create",
                "t",
                "--client-config",
                str(config),
            ],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            env={key: value for key, value in os.environ.items() if key != "MOLDAU_BOOTSTRAP"},
        )
        assert listed.returncode == 0, listed.stderr
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WITHIN_S)
    assert f"moldau topics list --client-config {config}" in errors
    assert_no_secret(tmp_path, errors)


def assert_no_secret(folder: Path, *texts: str) -> None:
    """Fails if a password or key of the set-up is in a text or in a file beside the set-up's."""
    import json

    (passwords,) = folder.glob("**/passwords.json")
    found = list(json.loads(passwords.read_text()).values())
    for text in texts:
        assert not any(secret in text for secret in found)
        assert "PRIVATE KEY" not in text
    for path in folder.rglob("*"):
        if path.is_file() and "secure" not in str(path.relative_to(folder)):
            data = path.read_bytes()
            assert not any(secret.encode() in data for secret in found), path
            assert b"PRIVATE KEY" not in data, path


@pytest.mark.slow
def test_moldau_up_secure_locks_a_whole_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "moldau", "up", "--secure", "--brokers", "2"]
    command += ["--ensemble", "1", "--port", "0", "--data-dir", str(tmp_path / "cluster")]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert "moldau cluster of 2 ready on" in process.stdout.readline()
        settings = dict(
            line.split("=", 1)
            for line in (tmp_path / "cluster/secure/admin.properties").read_text().splitlines()
        )
        assert metadata(settings) == 2
        with pytest.raises(PeerError):
            metadata({"bootstrap.servers": settings["bootstrap.servers"]})
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, errors
    assert_no_secret(tmp_path, errors)


def test_secrets_are_in_nothing_that_a_broker_says_or_keeps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After all that has to do with passwords was done once, right and wrong."""
    caplog.set_level("DEBUG")
    password, guess = "of alice, nobody else", "a wrong guess of mallory"
    said: list[str] = []
    with Broker(secure=True, http_listen="127.0.0.1:0", audit_topic="audit") as broker:
        admin_settings = dict(broker.client_settings)
        admin = AdminClient({**broker.librdkafka_settings})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("alice", info, password.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(WITHIN_S)
        login = admin_settings["sasl.jaas.config"]
        own = login.partition('password="')[2].partition('"')[0]
        assert len(own) > 20
        alices = login.replace("admin", "alice")
        right = admin_settings | {"sasl.jaas.config": alices.replace(own, password)}
        assert metadata(right) == 1
        with pytest.raises(NotAuthenticated) as refused:
            metadata(admin_settings | {"sasl.jaas.config": alices.replace(own, guess)})
        said.append(str(refused.value))
        broker_resource = ConfigResource(ConfigResource.Type.BROKER, "0")
        for entries in admin.describe_configs([broker_resource]).values():
            said += [f"{each.name}={each.value}" for each in entries.result(WITHIN_S).values()]
        described: Any = admin.describe_user_scram_credentials(["alice"])
        said.append(repr(described["alice"].result(WITHIN_S)))
        trusted = ssl.create_default_context(cafile=admin_settings["ssl.truststore.location"])
        with httpx.Client(base_url=broker.http_url, verify=trusted, timeout=WITHIN_S) as http:
            for user, given in (("admin", own), ("alice", password), ("alice", guess)):
                for path in ("/metrics", "/readyz", "/subjects", "/config", "/nothing"):
                    said.append(http.get(path, auth=(user, given)).text)
        assert any("moldau_" in text for text in said)
        assert broker.data_dir is not None
        files = [path for path in broker.data_dir.rglob("*") if path.is_file()]
        kept = b"".join(path.read_bytes() for path in files if "secure" not in path.parts)
    assert b"alice" in kept
    said.append(caplog.text)
    for secret in (own, password, guess):
        encoded = base64.b64encode(secret.encode()).rstrip(b"=")
        for form in (secret.encode(), encoded, secret.encode().hex().encode()):
            assert form not in kept
            assert not [text for text in said if form.decode() in text]
