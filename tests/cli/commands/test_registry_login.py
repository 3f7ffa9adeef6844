"""The login at a schema registry: in the client's config or the environment, and never on the
command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cli.commands.console import settings_of
from moldau.cli.http_login import REGISTRY_VARIABLE
from moldau.security.client import ClientSecurity
from moldau.security.client_config import CLIENT_CONFIG_VARIABLE
from moldau.testing import Broker
from tests.cli.conftest import Run
from tests.console.consoles import RunningConsole

USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "http.listen": "127.0.0.1:0",
        "http.security.protocol": "SASL_PLAINTEXT",
        "listener.name.http.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.http.plain.sasl.jaas.config": f'{USERS} user_alice="wonder@land:1";',
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(settings) as broker:
        yield broker


@pytest.mark.parametrize(
    "words",
    [("console", "--listen", "127.0.0.1:0"), ("mcp",), ("schemas", "list")],
    ids=["console", "mcp", "schemas"],
)
def test_one_on_the_command_line_is_refused_and_not_repeated(
    moldau: Run, words: tuple[str, ...]
) -> None:
    ended = moldau(*words, "--registry", "http://alice:wonder@127.0.0.1:1")
    assert ended.status == 2
    assert "--registry" in ended.err
    assert "basic.auth.user.info" in ended.err
    assert REGISTRY_VARIABLE in ended.err
    assert "wonder" not in ended.out + ended.err


def test_the_console_takes_that_of_the_client_config(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("schema.registry.basic.auth.user.info=alice:wonder@land:1\n")
    assert schemas(broker.bootstrap, broker.http_url) == 502
    monkeypatch.setenv(CLIENT_CONFIG_VARIABLE, str(config))
    assert schemas(broker.bootstrap, broker.http_url) == 200
    assert "wonder" not in repr(settings_of(broker.bootstrap, registry=broker.http_url))


def test_an_address_in_the_environment_may_have_one(
    broker: Broker, moldau: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = broker.http_url.replace("://", "://alice:wonder%40land%3A1@")
    assert schemas(broker.bootstrap, address) == 200
    monkeypatch.setenv(REGISTRY_VARIABLE, broker.http_url)
    assert moldau("schemas", "list").status == 1
    monkeypatch.setenv(REGISTRY_VARIABLE, address)
    assert moldau("schemas", "list").status == 0


def schemas(bootstrap: str, registry: str) -> int:
    """How a console answers that asks this registry."""
    with RunningConsole(settings_of(bootstrap, registry=registry)) as console:
        return console.http.get("api/schemas").status_code


@pytest.mark.parametrize(
    ("protocol", "url", "login"),
    [
        ("SASL_SSL", "https://registry.example.com", "alice:wonder"),
        ("SASL_SSL", "http://registry.example.com", ""),
        ("SASL_SSL", "http://127.0.0.1:8081", "alice:wonder"),
        ("SASL_SSL", "http://localhost:8081", "alice:wonder"),
        ("SASL_PLAINTEXT", "http://registry.example.com", "alice:wonder"),
    ],
)
def test_a_password_for_tls_goes_nowhere_else_in_clear(protocol: str, url: str, login: str) -> None:
    security = ClientSecurity.parse(
        {
            "security.protocol": protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "wonder",
        }
    )
    assert security is not None
    assert security.http_login(url) == login
    assert security.http_login(url, in_clear=True) == "alice:wonder"
